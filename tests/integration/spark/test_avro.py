"""Jobs over topics in Avro: they find what they find in JSON, by another reader of Avro than the bridge's."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from cdc.contract.change import Column
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.registered import head
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.naming import schemas_topic
from cdc.contract.record import TableSchema
from cdc.contract.schema import parse_schema
from cdc.lab.proof.comparison import Rows, describe, difference, pinned, table_rows
from cdc.lab.stack import RegistryServer
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.mirror.main import mirror
from cdc.spark.report.document import from_json
from tests.integration.bridge.test_formats import in_avro
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.spark import mirrors
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.test_mirror_altered import rows_of
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.topic_audit import read_records
from tests.support.topic_damage import Damage
from tests.support.type_matrix import matrix_tables
from tests.support.waiting import eventually

TABLE: Final = "public.account"
COLUMNS: Final = (
    Column("id", 23, -1, "pg_catalog.int4", True),
    Column("balance", 1700, (12 << 16 | 2) + 4, "pg_catalog.numeric", False),
    Column("note", 25, -1, "pg_catalog.text", False),
    Column("rate", 701, -1, "pg_catalog.float8", False),
    Column("at", 1184, -1, "pg_catalog.timestamptz", False),
)
ROWS: Final = 300


@pytest.mark.pg(16, matrix=False)
def test_every_type_is_read_by_every_job(
    database: Database, replica: Database, deploy: Deploy, registry: RegistryServer, tmp_path: Path,
    spark: SparkSession, spark_settings: SparkSettings,
) -> None:  # fmt: skip
    deployment = in_avro(deploy, registry, topics={"partitions": 1, "beyond": "text"})
    with prepare(database) as connection:
        prepare(replica).close()
        # What old rows look like means nothing to Spark
        tables = [table for table in matrix_tables(connection) if not table.full]
        names = [table.qualified for table in tables]
        for table in tables:
            table.create(connection)
        deployment.start()
        for table in tables:
            table.insert(connection)
            table.update(connection)
        deployment.assert_equal(*names)
    assert all(each.value is None or each.value[:1] == b"\0" for name in names for each in deployment.records(name))
    report = reconciled(job_for(deployment, tmp_path / "report", spark_settings), spark)
    wrong = [each for each in report.tables if each.verdict != "identical"]
    assert not wrong, "\n".join(f"{each.table}: {each.reason} {each.samples[:2]}" for each in wrong)
    # Arrays with bounds of their own or several dimensions, and the smallest float, are compared as whole rows.
    looked_at = {each.table: each.rounds[0].keys for each in report.tables if each.rounds[0].keys}
    assert sum(looked_at.values()) <= sum(each.counts.source_rows for each in report.tables) / 3, looked_at
    lake = mirrors.job_for(deployment, tmp_path / "lake")
    mirrors.run(spark, lake)
    with pinned(deployment.source.dsn) as source:
        for name in names:
            shape = describe(source, name)
            rows = mirrors.typed(table_rows(source, shape), shape, lake)
            copy = mirrors.lake_rows(lake, deployment.topic(name), shape)
            found = difference("lake", as_java_spells(rows), as_java_spells(copy), shape)
            assert found is None, f"{name}: {found}"
    deployment.stop()


def as_java_spells(rows: Rows) -> Rows:
    """Rows with the smallest numbers as Java spells them."""
    spelled = {b"5e-324": b"4.9e-324", b"1e-45": b"1.4e-45"}

    def respelled(cell: bytes | None) -> bytes | None:
        for ours, of_java in spelled.items():
            cell = None if cell is None else cell.replace(ours, of_java)
        return cell

    return {key: tuple(map(respelled, row)) for key, row in rows.items()}


class Account:
    """A table whose topic is in Avro, and what somebody else writes into it."""

    def __init__(self, deployment: Deployment) -> None:
        (definition,) = [each for each in definitions(deployment) if each.topic == deployment.topic(TABLE)]
        ((number, schema, _),) = definition.written
        self._writer = AvroWriter(COLUMNS, schema, number)
        self._records = {each.key: each for each in deployment.records(TABLE)}
        self._damage = Damage(deployment)

    def row(self, number: int, *, note: bytes = b"note", balance: bytes | None = None) -> bytes:
        """A row as the bridge would write it."""
        balance = b"%d.50" % number if balance is None else balance
        return self._writer.encode((b"%d" % number, balance, note, b"0.1", b"2026-11-27 12:00:00+00"))

    def value(self, number: int) -> bytes:
        """The row that the bridge wrote."""
        return self._records[b'{"id":%d}' % number].value or b""

    def write(self, number: int, value: bytes | None) -> None:
        """Write a record with a header of the bridge."""
        key = b'{"id":%d}' % number
        header = self._records[key if key in self._records else b'{"id":1}'].header
        self._damage.write(TABLE, key, value, header=header)

    def done(self) -> None:
        """See all of them arrive."""
        self._damage.done()


def definitions(deployment: Deployment) -> list[TableSchema]:
    records = read_records(deployment.bootstrap, [schemas_topic(deployment.name)])
    return [parse_schema(each.value) for each in records if each.value is not None]


@pytest.mark.timeout(900)
@pytest.mark.pg(16, matrix=False)
def test_damage_is_found_refused_and_healed(
    database: Database, deploy: Deploy, registry: RegistryServer, tmp_path: Path, spark: SparkSession
) -> None:
    database.execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2), note text, rate float8, at timestamptz)"
    )
    database.execute(
        f"INSERT INTO account SELECT n, n + 0.5, 'note', 0.1, '2026-11-27 12:00Z' FROM generate_series(1, {ROWS}) n"
    )
    deployment = in_avro(deploy, registry, topics={"partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    account = Account(deployment)
    assert account.value(5) == account.row(5)
    account.write(7, account.row(7, note=b"nose"))
    account.write(8, account.row(8, balance=b"-8.50"))
    account.write(9, account.value(9)[:-2])
    account.write(10, head(999_999) + account.value(10)[5:])
    account.write(11, account.value(11) + b"\0")
    account.write(12, None)
    account.write(900, account.row(900))
    # A row in JSON is the same row.
    as_json = b'{"id":13,"balance":"13.50","note":"note","rate":0.1,"at":"2026-11-27 12:00:00+00"}'
    account.write(13, as_json)
    account.done()
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    with pytest.raises(TopicUnreadable, match=r"\((Avro that is|a value whose schema)"):
        snapshots.take(TABLE)
    with pytest.raises(JobError, match=r"topic .*account, partition .* key .*\((Avro that is|a value whose schema)"):
        mirrors.run(spark, mirrors.job_for(deployment, tmp_path / "lake"))

    _, said = run_command(deployment, tmp_path / "report", "--repair", "--yes")
    found = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    table = table_of(found, TABLE)
    assert (table.counts.missing_in_topic, table.counts.extra_in_topic, table.counts.value_mismatch) == (1, 1, 5), said
    assert table.rounds[0].keys == 7
    told = {json.loads(each.key)["id"]: f"{each.cause} {each.other}" for each in table.samples}
    assert set(told) == {7, 8, 9, 10, 11, 12, 900}
    assert "nose" in told[7]
    assert all("(Avro that is" in told[number] for number in (9, 11)), told
    assert "(a value whose schema is in no" in told[10]
    healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
    repair = table_of(healed, TABLE).repair
    assert repair is not None
    assert repair.still_different == 0, said
    with database.connect() as connection:
        rows = connection.execute("SELECT id, balance, note, rate, at FROM account ORDER BY id").fetchall()
    # pyspark returns timestamps in the machine's time zone, without naming it.
    copy = [(*row[:-1], row[-1].astimezone(UTC)) for row in snapshots.rows(TABLE)]
    assert copy == rows
    deployment.stop()


@pytest.mark.pg(16, matrix=False)
def test_a_mirror_that_runs_meets_a_new_schema(
    database: Database, deploy: Deploy, registry: RegistryServer, tmp_path: Path, spark: SparkSession
) -> None:
    database.execute("CREATE TABLE thing (id int PRIMARY KEY, name text)")
    deployment = in_avro(deploy, registry, topics={"partitions": 1})
    deployment.start_bridge()
    database.execute("INSERT INTO thing VALUES (1, 'one')")
    deployment.wait_published()
    job = mirrors.job_for(deployment, tmp_path / "lake", ["public.thing"], once=False, interval_s=1, compact_every=100)
    topic, stop = deployment.topic("public.thing"), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(mirror, spark, job, stop)
        try:
            eventually(lambda: rows_of(job, topic) == [{"id": 1, "name": "one"}], timeout_s=120)
            database.execute("ALTER TABLE thing ADD COLUMN price numeric(6,2)")
            database.execute("INSERT INTO thing VALUES (2, 'two', 2.20)")
            database.execute("UPDATE thing SET name = 'first' WHERE id = 1")
            expected = [{"id": 1, "name": "first", "price": None}, {"id": 2, "name": "two", "price": "2.20"}]
            eventually(lambda: running.done() or newest(rows_of(job, topic)) == expected, timeout_s=120)
        finally:
            stop.set()
        running.result(timeout=60)
    assert newest(rows_of(job, topic)) == expected
    deployment.stop()


def newest(rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The last of the rows with each id: changes come after the state."""
    return list({row["id"]: row for row in rows}.values())
