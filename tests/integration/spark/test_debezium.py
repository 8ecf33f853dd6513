"""Jobs over topics of Debezium's change events: they find the rows, every type among them, and what is planted."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.debezium_modes import mark_of
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.formats.registered import registered
from cdc.contract.header import HeaderStamp
from cdc.contract.jobspec.deployment import KafkaSettings, SparkSettings
from cdc.contract.jobspec.health import HealthJob, HealthTopic
from cdc.contract.ports import StoredRecord
from cdc.contract.record import DebeziumModes, SchemaColumn, TableSchema, WrittenSchema
from cdc.contract.schema import table_schema
from cdc.lab.proof.comparison import describe, pinned
from cdc.lab.stack import RegistryServer
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.health.main import check
from cdc.spark.health.model import TopicHealth
from cdc.spark.mirror.main import mirror
from cdc.spark.report.document import from_json
from cdc.spark.values.avro import opened
from cdc.spark.values.debezium import DAMAGED, UNKNOWN_DEFINITION, UNKNOWN_MODES, UNKNOWN_SCHEMA
from tests.integration.bridge.test_envelope import fitting
from tests.integration.bridge.test_envelope_in_avro import without_arrays_by_name
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.spark import mirrors
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage
from tests.support.type_matrix import matrix_tables
from tests.support.waiting import eventually

TABLE: Final = "public.account"
MODES: Final = {"time_precision_mode": "microseconds", "binary_handling_mode": "hex", "schemas_enable": True}
ID: Final = SchemaColumn("id", "int4")
REFUSED: Final = r"\(a change event "


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


def go_on_with_events(deployment: Deployment, table: str) -> None:
    """Change the envelope of a topic that holds rows, and see all of its rows published again."""
    deployment.bridge.stop()
    deployment.settings["topics"]["envelope"] = "debezium"
    deployment.settings["debezium"] = MODES
    deployment.write()
    deployment.start_bridge()
    deployment.source.execute(f"UPDATE {table} SET id = id WHERE id = 1")  # the topic begins anew when it changes

    def is_done() -> bool:
        latest = {each.key: each for each in deployment.records(table)}.values()
        return all(each.value is None or b";envelope=" in each.header for each in latest)

    eventually(is_done, 60)
    deployment.wait_backfilled(table)


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
            go_on_with_events(deployment, "public.thing")
            database.execute("INSERT INTO thing VALUES (2, 2.20)")
            eventually(lambda: running.done() or (b"2",) in mirrors.lake_rows(job, topic, shape), timeout_s=120)
        finally:
            stop.set()
        running.result(timeout=60)
    mirrors.assert_equal(deployment, job, ["public.thing"])
    deployment.stop()


def health_of(deployment: Deployment, spark: SparkSession) -> TopicHealth:
    """What ``cdc health`` says about the topic."""
    job = HealthJob(
        spark=SparkSettings(),
        kafka=KafkaSettings(options={"bootstrap.servers": deployment.bootstrap}),
        topics=(HealthTopic(topic=deployment.topic(TABLE)),),
        schemas_topic=f"{deployment.name}.__schemas",
    )
    (found,) = check(spark, job).topics
    return found


def damage(deployment: Deployment, former: StoredRecord) -> None:
    """Write what no bridge writes; ``former`` was the record of key 30 while its row existed."""
    events = {each.key: each for each in deployment.records(TABLE) if each.value is not None}
    writer = Damage(deployment)

    def event(number: int) -> bytes:
        return events[b'{"id":%d}' % number].value or b""

    def write(number: int, value: bytes | None, *, instead: tuple[bytes, bytes] = (b"", b"")) -> None:
        key = b'{"id":%d}' % number
        header = events[key if key in events else b'{"id":1}'].header
        assert instead[0] in header
        writer.write(TABLE, key, value, header=header.replace(*instead))

    write(17, event(17).replace(b'"note":"n17"', b'"note":"n71"'))
    write(18, event(18).replace(b'"id":18,"balance":"', b'"id":18,"balance":"!'))
    write(19, event(19)[:-2])
    write(20, event(20), instead=(b"precise.microseconds", b"precise.fortnights"))
    write(21, b"\0" + event(21))
    write(22, None)
    write(23, event(30))  # which says that a row was deleted
    writer.write(TABLE, former.key or b"", former.value, header=former.header)
    write(900, event(25).replace(b'"id":25', b'"id":900'))
    row = (
        b'{"id":24,"balance":"24.50","note":"n24","raw":"\\\\x0024","day":"2026-11-27",'
        b'"at":"2026-11-27 12:00:00.5+00","more":null}'
    )
    write(24, row, instead=(b";envelope=precise.microseconds.hex.json.schemas", b""))
    writer.done()


@pytest.mark.timeout(900)
@pytest.mark.pg(16, matrix=False)
def test_damage_is_found_refused_and_healed(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession
) -> None:
    database.execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2), note text, raw bytea, day date,"
        " at timestamptz)"
    )
    database.execute(
        "INSERT INTO account SELECT n, n + 0.5, 'n' || n, decode('00' || n, 'hex'), '2026-11-27',"
        " '2026-11-27 12:00:00.5Z' FROM generate_series(10, 69) n"
    )
    database.execute("INSERT INTO account VALUES (1, 1, NULL, NULL, NULL, NULL)")
    # It begins with rows, and goes on with events
    deployment = deploy(topics={"partitions": 2}, source={"on_gap": "rebackfill"})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    go_on_with_events(deployment, TABLE)
    *_, former = (each for each in deployment.records(TABLE) if each.key == b'{"id":30}' and each.value is not None)
    database.execute("DELETE FROM account WHERE id = 30")
    database.execute("UPDATE account SET id = 130 WHERE id = 31")
    database.execute("ALTER TABLE account ADD COLUMN more jsonb")
    database.execute("UPDATE account SET more = CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'null' ELSE '[1]' END::jsonb")
    deployment.wait_published()
    lake = mirrors.job_for(deployment, tmp_path / "lake", [TABLE])
    mirrors.run(spark, lake)
    mirrors.assert_equal(deployment, lake, [TABLE])
    assert [each.severity for each in health_of(deployment, spark).findings if each.severity == "error"] == []
    damage(deployment, former)

    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    with pytest.raises(TopicUnreadable, match=REFUSED):
        snapshots.take(TABLE)
    with pytest.raises(JobError, match=rf"topic .*account, .* key .*{REFUSED}"):
        mirrors.run(spark, lake)
    _, said = run_command(deployment, tmp_path / "report", "--repair", "--yes")
    found = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    table = table_of(found, TABLE)
    told = {json.loads(each.key)["id"]: f"{each.cause} {each.other}" for each in table.samples}
    assert set(told) == {17, 18, 19, 20, 21, 22, 23, 30, 900}, said
    assert (table.counts.missing_in_topic, table.counts.extra_in_topic, table.counts.value_mismatch) == (2, 2, 5), said
    assert "n71" in told[17]
    assert all("(a change event that is cut or damaged)" in told[number] for number in (18, 19)), told
    assert "(a change event in modes that" in told[20]
    assert "(a change event whose schema is not" in told[21]
    assert told[30].startswith("stale version"), told
    healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
    repair = table_of(healed, TABLE).repair
    assert repair is not None
    assert repair.still_different == 0, said
    with database.connect() as connection:
        rows = connection.execute("SELECT id, balance, note, day FROM account ORDER BY id").fetchall()
    copy = [(row[0], row[1], row[2], row[4]) for row in snapshots.rows(TABLE)]
    assert copy == rows
    mirrors.run(spark, lake.model_copy(update={"path": str(tmp_path / "healed")}))
    deployment.stop()
