"""Jobs over topics whose values have schemas, in each format: they find what they find in JSON, and no less.

One deployment has tables of each format; the tests here are its life, and Spark runs for as few of them as possible.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.contract.change import Column
from cdc.contract.formats.protobuf import wire
from cdc.contract.formats.registered import HEAD_BYTES, head, registered
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.naming import schemas_topic, subject
from cdc.contract.record import FormatName
from cdc.contract.schema import parse_schema
from cdc.lab.proof.comparison import Rows, describe, difference, pinned, table_rows
from cdc.lab.stack import Kafka, Postgres, RegistryServer
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.mirror.main import mirror
from cdc.spark.report.document import from_json
from cdc.spark.report.model import Report
from tests.integration.bridge.test_formats import be_compatible
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.spark import mirrors
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.test_mirror_altered import rows_of
from tests.support.deployment import Deployment, deployed
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import fresh_database
from tests.support.topic_audit import read_records
from tests.support.topic_damage import Damage
from tests.support.type_matrix import MatrixTable, matrix_tables
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(900), pytest.mark.pg(16, matrix=False)]

FORMATS: Final[Mapping[str, FormatName]] = {"avro": "avro", "protobuf": "protobuf", "described": "json-schema"}
"""By the ends of the tables' names."""
DAMAGED: Final = {
    "avro": "(Avro that is",
    "protobuf": "(Protobuf that is",
    "described": "(JSON that is cut or damaged)",
}
COLUMNS: Final = (
    Column("id", 23, -1, "pg_catalog.int4", True),
    Column("balance", 1700, (12 << 16 | 2) + 4, "pg_catalog.numeric", False),
    Column("note", 25, -1, "pg_catalog.text", False),
    Column("rate", 701, -1, "pg_catalog.float8", False),
    Column("at", 1184, -1, "pg_catalog.timestamptz", False),
    Column("more", 3802, -1, "pg_catalog.jsonb", False),
)
"""Of an account."""
ROWS: Final = 300
RETYPE: Final = (
    "ALTER TABLE public.retyped_{} ALTER id TYPE bigint, ALTER n TYPE text, ALTER d TYPE numeric(8,3),"
    " ALTER t TYPE bytea USING convert_to(t, 'UTF8'), ALTER at TYPE timestamptz USING at AT TIME ZONE 'UTC'"
)
"""Changes that a registry takes in the mode ``NONE`` only."""


def named(what: str) -> list[str]:
    """A table of each format."""
    return [f"public.{what}_{name}" for name in FORMATS]


@dataclass
class Formats:
    """The deployment, a connection to its source, and its tables of every type, by the ends of their names."""

    deployment: Deployment
    connection: psycopg.Connection[Any]
    matrix: Mapping[str, Sequence[MatrixTable]]

    @property
    def tables(self) -> list[str]:
        """All tables."""
        matrix = [table.qualified for each in self.matrix.values() for table in each]
        return [*named("account"), *named("retyped"), *named("thing"), *matrix]

    def execute(self, *statements: str) -> None:
        """Run statements on a table of each format."""
        for statement in statements:
            for name in FORMATS:
                self.connection.execute(statement.format(name).encode())


@pytest.fixture(scope="module")
def formats(
    postgres: Postgres,
    other_postgres: Postgres,
    kafka: Kafka,
    registry: RegistryServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Formats]:
    """Everything is published and in the replica; bridge and sink run."""
    with ExitStack() as stack:
        source, replica = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        connection = stack.enter_context(prepare(source))
        prepare(replica).close()
        matrix = {name: made_for(name, connection) for name in FORMATS}
        formats_ = {
            f"public.{what}_{each}": FORMATS[each] for what in ("account", "thing", "retyped") for each in FORMATS
        }
        formats_ |= {table.qualified: FORMATS[name] for name, tables in matrix.items() for table in tables}
        sections: dict[str, dict[str, Any]] = {
            "topics": {"partitions": 2, "formats": formats_},
            "registry": {"url": registry.url},
        }
        folder = tmp_path_factory.mktemp("formats")
        deployment = stack.enter_context(deployed(source, kafka.bootstrap, replica, folder, sections))
        found = Formats(deployment, connection, matrix)
        for table in named("retyped"):
            be_compatible(registry, subject(deployment.topic(table)), "NONE")
        fill(found)
        change(found)
        deployment.assert_equal(*found.tables)
        for name in found.tables:
            values = [each.value for each in deployment.records(name) if each.value is not None]
            assert values, name
            assert all(value[:1] == b"\0" for value in values), name
        yield found
        deployment.stop()


def made_for(name: str, connection: psycopg.Connection[tuple[object, ...]]) -> list[MatrixTable]:
    """Tables that have every type. What old rows look like means nothing to Spark."""
    return [replace(each, name=f"{each.name} {name}") for each in matrix_tables(connection) if not each.full]


def fill(formats: Formats) -> None:
    """Begin, with rows that the backfill reads."""
    formats.execute(
        "CREATE TABLE account_{} (id int PRIMARY KEY, balance numeric(12,2), note text, rate float8, at timestamptz)",
        "INSERT INTO account_{} SELECT n, n + 0.5, 'é\"' || n, CASE n % 2 WHEN 0 THEN 'NaN' ELSE 0.1 END,"
        f" '2026-11-27 12:00Z' FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE retyped_{} (id int PRIMARY KEY, n int, d numeric(6,2), t text, at timestamp)",
        "INSERT INTO retyped_{} SELECT i, i, i + 0.25, 'é', '2026-01-02 03:04:05' FROM generate_series(1, 20) i",
        "CREATE TABLE thing_{} (id int PRIMARY KEY, name text)",
        "INSERT INTO thing_{} VALUES (1, 'one')",
    )
    formats.deployment.start()
    formats.deployment.wait_backfilled(*named("account"), *named("retyped"), *named("thing"))


def change(formats: Formats) -> None:
    """Give topics values of several schemas. From here on, a value may be beyond its type."""
    deployment = formats.deployment
    formats.execute(
        "ALTER TABLE account_{} ADD COLUMN more jsonb",
        "UPDATE account_{} SET more = CASE id % 2 WHEN 0 THEN 'null' ELSE '{{\"a\": [1]}}' END::jsonb",
    )
    deployment.wait_mirrored()
    deployment.stop()
    deployment.settings["topics"]["beyond"] = "text"
    deployment.write()
    formats.execute(RETYPE, "UPDATE retyped_{} SET n = n || ' times'")
    for name in FORMATS:
        deployment.replica.execute(RETYPE.format(name))
    for table in formats.matrix.values():
        for each in table:
            each.create(formats.connection)
    # The sink only then: it stops a table whose columns somebody widened before it knows of the source's new type
    deployment.start_bridge()
    deployment.wait_published()
    deployment.sink.start()
    for table in formats.matrix.values():
        for each in table:
            each.insert(formats.connection)
            each.update(formats.connection)


class Account:
    """A table, and what somebody else writes into its topic."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.name, self.table = name, f"public.account_{name}"
        records = read_records(deployment.bootstrap, [schemas_topic(deployment.name)])
        definitions = [parse_schema(each.value) for each in records if each.value is not None]
        *_, newest = [each for each in definitions if each.topic == deployment.topic(self.table)]
        ((number, schema, _),) = newest.written
        self._writer = registered(FORMATS[name]).writer(COLUMNS, schema, number)
        self._records = {each.key: each for each in deployment.records(self.table)}
        self._damage = Damage(deployment)

    def row(self, number: int, *, note: bytes | None = None, balance: bytes | None = None) -> bytes:
        """A row as the bridge would write it."""
        digits = b"%d" % number
        rate, more = (b"NaN", b"null") if number % 2 == 0 else (b"0.1", b'{"a": [1]}')
        note = b'\xc3\xa9"' + digits if note is None else note
        balance = digits + b".50" if balance is None else balance
        return self._writer.encode((digits, balance, note, rate, b"2026-11-27 12:00:00+00", more))

    def value(self, number: int) -> bytes:
        """The row that the bridge wrote."""
        return self._records[b'{"id":%d}' % number].value or b""

    def damage(self) -> None:
        """Write what no bridge writes, and the row 13 in JSON, which is the same row."""
        assert self.value(5) == self.row(5)
        other_head = wire.head(999_999) if self.name == "protobuf" else head(999_999)
        self._write(7, self.row(7, note=b"nose"))
        self._write(8, self.row(8, balance=b"-8.50"))
        self._write(9, self.value(9)[:-2])
        self._write(10, other_head + self.value(10)[len(other_head) :])
        self._write(11, self.value(11) + b"\0")
        self._write(12, None)
        row = '{"id":13,"balance":"13.50","note":"é\\"13","rate":0.1,"at":"2026-11-27 12:00:00+00","more":{"a": [1]}}'
        self._write(13, row.encode())
        self._write(14, self.value(14)[:HEAD_BYTES])
        self._write(900, self.row(900))
        self._damage.done()

    def _write(self, number: int, value: bytes | None) -> None:
        """Write a record with a header of the bridge."""
        key = b'{"id":%d}' % number
        header = self._records[key if key in self._records else b'{"id":1}'].header
        self._damage.write(self.table, key, value, header=header)


@pytest.fixture(scope="module")
def damaged(formats: Formats) -> Formats:
    """The replica stays as it was before the damage."""
    formats.deployment.sink.stop()
    for name in FORMATS:
        Account(formats.deployment, name).damage()
    return formats


@dataclass
class Healed:
    """What ``cdc reconcile --repair`` found, what it found when it looked again, and what it printed."""

    formats: Formats
    found: Report
    again: Report
    said: str


@pytest.fixture(scope="module")
def healed(damaged: Formats, tmp_path_factory: pytest.TempPathFactory) -> Healed:
    """The topics hold the rows of the source again."""
    folder = tmp_path_factory.mktemp("report")
    _, said = run_command(damaged.deployment, folder, *named("account"), "--repair", "--yes")
    documents = (folder / "report.json", folder / "after-repair" / "report.json")
    found, again = (from_json(each.read_text(encoding="utf-8")) for each in documents)
    return Healed(damaged, found, again, said)


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_refused(damaged: Formats, spark: SparkSession, tmp_path: Path, name: str) -> None:
    """By a snapshot and by a mirror, with its place."""
    table, deployment = f"public.account_{name}", damaged.deployment
    told = rf"(?:{re.escape(DAMAGED[name])}|\(a value whose schema)"
    with pytest.raises(TopicUnreadable, match=told):
        Snapshots(spark, deployment, tmp_path / "snapshots").take(table)
    with pytest.raises(JobError, match=rf"topic .*account_{name}, partition .* key .*{told}"):
        mirrors.run(spark, mirrors.job_for(deployment, tmp_path / "lake", [table]))


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_found_and_healed(healed: Healed, name: str) -> None:
    table = table_of(healed.found, f"public.account_{name}")
    counts = table.counts
    assert (counts.missing_in_topic, counts.extra_in_topic, counts.value_mismatch) == (1, 1, 6), healed.said
    assert table.rounds[0].keys == 8
    of_topic = [each for each in table.samples if each.side == "topic"]  # the replica's are the same keys
    told = {json.loads(each.key)["id"]: f"{each.cause} {each.other}" for each in of_topic}
    assert set(told) == {7, 8, 9, 10, 11, 12, 14, 900}
    assert "nose" in told[7]
    assert all(DAMAGED[name] in told[number] for number in (9, 11, 14)), told
    assert "(a value whose schema is in no" in told[10]
    repair = table_of(healed.again, table.table).repair
    assert repair is not None
    assert repair.still_different == 0, healed.said


def test_all_else_is_identical(
    formats: Formats, spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path
) -> None:
    """Every type, rows of several schemas, and the replica of everything."""
    names = [each for each in formats.tables if each not in named("account")]
    report = reconciled(job_for(formats.deployment, tmp_path / "report", spark_settings, names), spark)
    wrong = [each for each in report.tables if each.verdict != "identical"]
    assert not wrong, "\n".join(f"{each.table}: {each.reason} {each.samples[:2]}" for each in wrong)
    replicas = [each.replica for each in report.tables]
    assert all(each is not None and each.identical and not each.differences for each in replicas), replicas
    # In Avro, arrays with bounds of their own or several dimensions, and the smallest float, are compared as whole rows
    for name, tables in formats.matrix.items():
        found = [table_of(report, table.qualified) for table in tables]
        looked_at = {each.table: each.rounds[0].keys for each in found if each.rounds[0].keys}
        assert sum(looked_at.values()) <= sum(each.counts.source_rows for each in found) / 3, looked_at
        assert name != "described" or not looked_at


def test_a_snapshot_has_the_rows(healed: Healed, spark: SparkSession, tmp_path: Path) -> None:
    formats, deployment = healed.formats, healed.formats.deployment
    manifest, frames = Snapshots(spark, deployment, tmp_path / "snapshots").take(*named("account"), *named("retyped"))
    assert [each.rows for each in manifest.tables] == [ROWS] * 3 + [20] * 3
    for name in FORMATS:
        query = f"SELECT id, balance, note, rate::text, at FROM account_{name} ORDER BY id"
        rows = formats.connection.execute(query.encode()).fetchall()
        # pyspark returns timestamps in the machine's time zone, without naming it
        found = frames[f"public.account_{name}"].select("id", "balance", "note", "rate", "at").collect()
        copy = [(*row[:3], "NaN" if row[3] != row[3] else str(row[3]), row[4].astimezone(UTC)) for row in found]
        assert sorted(copy) == rows


def test_a_mirror_has_every_type_and_meets_a_new_schema(healed: Healed, spark: SparkSession, tmp_path: Path) -> None:
    formats, deployment = healed.formats, healed.formats.deployment
    job = mirrors.job_for(deployment, tmp_path / "lake", once=False, interval_s=1, compact_every=100)
    topics, stop = [deployment.topic(table) for table in named("thing")], threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(mirror, spark, job, stop)

        def are(*expected: Mapping[str, object]) -> bool:
            return running.done() or [newest(rows_of(job, topic)) for topic in topics] == [list(expected)] * 3

        try:
            eventually(lambda: are({"id": 1, "name": "one"}), timeout_s=240)
            formats.execute(
                "ALTER TABLE thing_{} ADD COLUMN price numeric(6,2)",
                "INSERT INTO thing_{} VALUES (2, 'two', 2.20)",
                "UPDATE thing_{} SET name = 'first' WHERE id = 1",
            )
            expected = {"id": 1, "name": "first", "price": None}, {"id": 2, "name": "two", "price": "2.20"}
            eventually(lambda: are(*expected), timeout_s=240)
        finally:
            stop.set()
        running.result(timeout=60)
    assert are(*expected)
    with pinned(deployment.source.dsn) as source:
        for name in formats.tables:
            if name in named("thing"):
                continue
            shape = describe(source, name)
            rows = mirrors.typed(table_rows(source, shape), shape, job)
            copy = mirrors.lake_rows(job, deployment.topic(name), shape)
            found = difference("lake", as_java_spells(rows), as_java_spells(copy), shape)
            assert found is None, f"{name}: {found}"


def newest(rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The last of the rows with each id: changes come after the state."""
    return list({row["id"]: row for row in rows}.values())


def as_java_spells(rows: Rows) -> Rows:
    """Rows with the smallest numbers as Java spells them."""
    spelled = {b"5e-324": b"4.9e-324", b"1e-45": b"1.4e-45"}

    def respelled(cell: bytes | None) -> bytes | None:
        for ours, of_java in spelled.items():
            cell = None if cell is None else cell.replace(ours, of_java)
        return cell

    return {key: tuple(map(respelled, row)) for key, row in rows.items()}
