"""Jobs over topics of Debezium's change events: they find the rows, every type among them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.debezium_modes import mark_of
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.formats.registered import registered
from cdc.contract.header import HeaderStamp
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.record import DebeziumModes, SchemaColumn, TableSchema, WrittenSchema
from cdc.contract.schema import table_schema
from cdc.lab.proof.comparison import describe, pinned
from cdc.lab.stack import RegistryServer
from cdc.spark.mirror.main import mirror
from cdc.spark.values.avro import opened
from cdc.spark.values.debezium import DAMAGED, UNKNOWN_DEFINITION, UNKNOWN_MODES, UNKNOWN_SCHEMA
from tests.integration.bridge.test_envelope import fitting
from tests.integration.bridge.test_envelope_in_avro import without_arrays_by_name
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.spark import mirrors
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.reconciling import job_for, reconciled
from tests.support.servers import Database
from tests.support.type_matrix import matrix_tables
from tests.support.waiting import eventually

MODES: Final[dict[str, Any]] = {
    "time_precision_mode": "microseconds",
    "binary_handling_mode": "hex",
    "schemas_enable": True,
}
ID: Final = SchemaColumn("id", "int4")


@pytest.mark.long
@pytest.mark.pg(16, matrix=False)
@pytest.mark.parametrize("form", ["json", "avro"])
def test_every_value_is_identical(
    database: Database, replica: Database, deploy: Deploy, tmp_path: Path,
    spark: SparkSession, spark_settings: SparkSettings, registry: RegistryServer, form: str,
) -> None:  # fmt: skip
    forms = {"json": "debezium", "avro": "debezium in avro"}
    deployment = deploy_in(forms[form], deploy, registry, topics={"partitions": 1})
    with prepare(database) as connection:
        prepare(replica).close()
        tables = list(fitting(matrix_tables(connection), connection))
        if form == "avro":
            tables = [without_arrays_by_name(each) for each in tables]
        names = [table.qualified for table in tables]
        for table in tables:
            table.create(connection)
        deployment.start()
        for table in tables:
            table.insert(connection)
            table.update(connection)
        deployment.assert_equal(*names)
    report = reconciled(job_for(deployment, tmp_path / "report", spark_settings), spark)
    wrong = [each for each in report.tables if each.verdict != "identical" or each.rounds[0].keys]
    assert not wrong, "\n".join(
        f"{each.table}: {each.verdict} {each.reason} {each.rounds} {each.samples[:2]}" for each in wrong
    )
    lake = mirrors.job_for(deployment, tmp_path / "lake", names)
    mirrors.run(spark, lake)
    mirrors.assert_equal(deployment, lake, names)
    deployment.stop()


def test_a_frame_of_events_is_opened(spark: SparkSession) -> None:
    """Events of two definitions and in several modes; deleted rows and rows; and what cannot be read."""
    event = b'{"before":null,"after":%b,"op":"c"}'
    header = "v=1;op=c;lsn=0/1;seq=1;xid=1;ts=1;schema=%s;envelope=%s"
    modes = "string.isostring.hex.map.plain"
    known = [
        TableSchema("a" * 16, "public", "t", "t", ("id",), (ID,), envelope=DebeziumModes()),
        TableSchema("b" * 16, "public", "t", "t", ("id",), (ID, SchemaColumn("d", "date")), was_enveloped=True),
    ]
    expected = {
        (None, header % ("a" * 16, modes)): None,
        (b'{"id":1}', header.partition(";schema")[0] + ";schema=" + "a" * 16): '{"id":1}',
        (event % b'{"id":2}', header % ("a" * 16, modes)): '{"id":2}',
        (event % b'{"d":"2026-11-28Z","id":3}', header % ("b" * 16, modes)): '{"id":3,"d":"2026-11-28"}',
        (event % b'{"id":4,"d":20785}', header % ("b" * 16, mark_of(DebeziumModes()))): '{"id":4,"d":"2026-11-28"}',
        (event % b'{"id":5,"d":20785}', header % ("b" * 16, modes)): DAMAGED,
        (event % b'{"id":6,"d":null}', header % ("a" * 16, modes)): DAMAGED,
        (event % b'{"id":7}', header % ("c" * 16, modes)): UNKNOWN_DEFINITION,
        (event % b'{"id":8}', header % ("a" * 16, modes + "er")): UNKNOWN_MODES,
        (b"\0" + event % b'{"id":9}', header % ("a" * 16, modes)): UNKNOWN_SCHEMA,
        (
            b'{"schema":{},"payload":' + event % b'{"id":10}' + b"}",
            header % ("a" * 16, modes[:-5] + "schemas"),
        ): '{"id":10}',
        (event % b'{"id":11}', header % ("a" * 16, modes[:-5] + "schemas")): DAMAGED,
        (b'{"before":null,"after":null,"op":"d"}', header % ("a" * 16, modes)): None,
    }
    rows = [(place, *record) for place, record in enumerate(expected)]
    frame = spark.createDataFrame(rows, "place int, value binary, header string").repartition(2).sort("place")
    found = [None if row["value"] is None else bytes(row["value"]).decode() for row in opened(frame, known).collect()]
    assert found == list(expected.values())


def test_a_frame_of_events_in_avro_is_opened(spark: SparkSession) -> None:
    """Each by the schema that its definition has under its id, beside rows in Avro and events in JSON."""
    columns = (Column("id", 23, -1, "pg_catalog.int4", True), Column("a b", 1082, -1, "pg_catalog.date", False))
    modes, relation = DebeziumModes(), Relation(7, "public", "t", ReplicaIdentity.DEFAULT, columns)
    plain = table_schema(relation, ("id",), "t")
    texts = [registered("avro", envelope).schema(plain, "shop", "refuse") for envelope in (None, modes)]
    written = tuple(WrittenSchema(number, text, "avro") for number, text in enumerate(texts, 7))
    definition = replace(plain, format="avro", envelope=modes, written=written)
    maker = EnvelopeMaker("shop", "shop", "0.1.0", lambda: 1)
    maker.learn(definition, columns, modes)
    header = HeaderStamp(LSN(7), 1, 1).header("c", 1, plain.fingerprint)
    row = registered("avro", modes).writer(columns, texts[1], 8).encode((b"1", b"2026-11-28"))
    ((event, marked),) = maker.values(b"{}", row, header, None)
    (deleted, _), _ = maker.values(b'{"id":1}', None, header, None)
    assert event is not None
    records = [
        (event, marked, '{"id":1,"a b":"2026-11-28"}'),
        (deleted, marked, None),
        (registered("avro").writer(columns, texts[0], 7).encode((b"2", None)), header, '{"id":2,"a b":null}'),
        (b'{"before":null,"after":{"a b":1,"id":3},"op":"c"}', marked, '{"id":3,"a b":"1970-01-02"}'),
        (event[:-1], marked, DAMAGED),
        (event + b"\0", marked, DAMAGED),
        (b"\0\0\0\0\x09" + event[5:], marked, UNKNOWN_SCHEMA),
        (b"\0\0\0\0\x07" + event[5:], marked, UNKNOWN_SCHEMA),
    ]
    rows = [(place, value, told.decode()) for place, (value, told, _) in enumerate(records)]
    frame = spark.createDataFrame(rows, "place int, value binary, header string").repartition(2).sort("place")
    opened_rows = opened(frame, [definition]).collect()
    found = [None if each["value"] is None else bytes(each["value"]).decode() for each in opened_rows]
    assert found == [expected for _, _, expected in records]


def go_on_with_events(deployment: Deployment, modes: dict[str, Any], *tables: str) -> None:
    """Change the envelope of topics that hold rows, and see all of these published again."""
    deployment.bridge.stop()
    deployment.settings["topics"]["envelope"] = "debezium"
    deployment.settings["debezium"] = modes
    deployment.write()
    deployment.start_bridge()
    for table in tables:
        deployment.source.execute(f"UPDATE {table} SET id = id WHERE id = 1")  # the topic begins anew when it changes

    def is_done(table: str) -> bool:
        latest = {each.key: each for each in deployment.records(table)}.values()
        return all(each.value is None or b";envelope=" in each.header for each in latest)

    eventually(lambda: all(map(is_done, tables)), 60)
    deployment.wait_backfilled(*tables)


@pytest.mark.pg(16, matrix=False)
def test_a_mirror_that_runs_meets_the_first_event(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession
) -> None:
    """It knows the definition from before, which did not say that values are events."""
    database.execute("CREATE TABLE thing (id int PRIMARY KEY, price numeric(6,2))")
    deployment = deploy(topics={"partitions": 1}, source={"on_gap": "rebackfill"})
    deployment.start_bridge()
    database.execute("INSERT INTO thing VALUES (1, 1.10)")
    deployment.wait_published()
    job = mirrors.job_for(deployment, tmp_path / "lake", ["public.thing"], once=False, interval_s=1, compact_every=100)
    topic, stop = deployment.topic("public.thing"), threading.Event()
    with pinned(database.dsn) as connection:
        shape = describe(connection, "public.thing")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(mirror, spark, job, stop)
        try:
            eventually(lambda: mirrors.lake_rows(job, topic, shape) == {(b"1",): (b"1", b"1.10")}, timeout_s=120)
            go_on_with_events(deployment, MODES, "public.thing")
            database.execute("INSERT INTO thing VALUES (2, 2.20)")
            eventually(lambda: running.done() or (b"2",) in mirrors.lake_rows(job, topic, shape), timeout_s=120)
        finally:
            stop.set()
        running.result(timeout=60)
    mirrors.assert_equal(deployment, job, ["public.thing"])
    deployment.stop()
