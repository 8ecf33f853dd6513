"""Snapshots of a live database: full rows against what the source printed, and states that the test kept."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.jobspec.snapshot import AsOfLsn, AsOfOffsets, AsOfTime
from cdc.spark.errors import JobError, NotCaughtUp, PastErased
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.type_catalogue import CUSTOM_TYPES, VALUE_TYPES
from tests.support.type_matrix import PINNED

TABLE = "public.account"


def as_text(value: Any, sql_type: str) -> Any:
    """A value out of Parquet as PostgreSQL prints it; of an array the elements. Not for floats."""
    if isinstance(value, list):
        return [None if each is None else as_text(each, sql_type) for each in value]
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes | bytearray):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        moment = value.isoformat(" ")
        return (moment.rstrip("0") if "." in moment else moment) + ("+00" if "tz" in sql_type else "")
    if isinstance(value, date):
        return value.isoformat()
    return None if value is None else str(value)


def as_single(number: float) -> float:
    """What is left of a number in four bytes."""
    (single,) = struct.unpack("f", struct.pack("f", number))
    return float(single)


def printed(connection: psycopg.Connection[Any], name: str, sql_type: str) -> dict[int, Any]:
    """The column as the source has it: text, an array's elements as text, floats as numbers."""
    column = sql.Identifier(name)
    if sql_type.endswith("[]") and not sql_type.startswith("json"):
        expression = sql.SQL("to_json({}::text[])").format(column)
        if sql_type.startswith("boolean"):
            expression = sql.SQL(
                "CASE WHEN {0} IS NOT NULL THEN to_json(array(SELECT left(e::text, 1) FROM unnest({0}) e)) END"
            ).format(column)
    elif sql_type in ("real", "double precision"):
        expression = sql.SQL("{}").format(column)
    else:
        # A cast of char(n) to text would take its blanks away; a composite with a null in it is not "not null".
        expression = sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(column)
    query = sql.SQL("SELECT id, {} FROM matrix ORDER BY id").format(expression)
    return dict(connection.execute(query).fetchall())


@pytest.fixture
def snapshots(spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path) -> Snapshots:
    """Of a table that has rows from before the bridge; the bridge runs."""
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2), note text)")
    database.execute("INSERT INTO account SELECT n, n, 'old' FROM generate_series(1, 50) n")
    database.execute("CREATE TABLE other (id int PRIMARY KEY, balance numeric(12,2))")
    deployment = deploy(topics={"partitions": 3})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE, "public.other")
    return Snapshots(spark, deployment, tmp_path / "snapshots")


def source_rows(database: Database, table: str = "account") -> list[Any]:
    return sorted(database.execute(f"SELECT * FROM {table}"))


def test_every_type_comes_back_as_the_source_prints_it(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    count = max(map(len, VALUE_TYPES.values()))
    with database.connect(options=PINNED) as connection:
        connection.execute(CUSTOM_TYPES)
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(name)) for name in VALUE_TYPES
        )
        connection.execute(sql.SQL("CREATE TABLE matrix (id int PRIMARY KEY, {})").format(columns))
        for number in range(count):
            values = sql.SQL(", ").join(
                sql.SQL("{}::{}").format(sql.Literal(each[number % len(each)]), sql.SQL(name))
                for name, each in VALUE_TYPES.items()
            )
            connection.execute(sql.SQL("INSERT INTO matrix VALUES ({}, {})").format(sql.Literal(number), values))
        connection.execute("INSERT INTO matrix (id) VALUES (9999)")
        deployment = deploy(topics={"partitions": 2})
        deployment.start_bridge()
        deployment.wait_backfilled("public.matrix")
        manifest, found = Snapshots(spark, deployment, tmp_path / "s").take("public.matrix")
        frame = found["public.matrix"]
        rows = {row["id"]: row for row in frame.collect()}
        assert manifest.tables[0].rows == len(rows) == count + 1
        typed = {field.name: field for field in frame.schema.fields}
        assert typed["numeric(12,3)"].dataType.simpleString() == "decimal(12,3)"
        assert typed["numeric"].dataType.simpleString() == "string"
        assert "text" in typed["numeric"].metadata["note"]
        assert typed["timestamptz"].dataType.simpleString() == "timestamp"
        assert typed["timestamp"].dataType.simpleString() == "timestamp_ntz"
        assert typed["integer[]"].dataType.simpleString() == "array<int>"
        beyond_count, different = 0, list[tuple[str, int, object, object]]()
        for name in VALUE_TYPES:
            kind = typed[name].dataType.simpleString()
            texts = printed(connection, name, "text")
            wanted = printed(connection, name, {"texts": "text[]"}.get(name, name) if kind != "string" else "text")
            for number, row in rows.items():
                beyond = dict(row["_beyond"] or {})
                if name in beyond:
                    beyond_count += 1
                    assert row[name] is None
                    assert not kind.startswith("array") or texts[number].startswith(("{{", "[")), texts[number]
                    if not kind.startswith("array"):
                        assert beyond[name] == texts[number]
                elif kind == "string" and name.startswith("jsonb["):
                    assert (row[name] is None) == (texts[number] is None)
                elif isinstance(row[name], float):
                    single = as_single(wanted[number]) if name == "real" else wanted[number]
                    if repr(row[name]) != repr(single):
                        different.append((name, number, row[name], single))
                elif name == "double precision[]":
                    floats = wanted[number] and [None if each is None else float(each) for each in wanted[number]]
                    if repr(row[name]) != repr(floats):
                        different.append((name, number, row[name], floats))
                elif as_text(row[name], name) != wanted[number]:
                    different.append((name, number, row[name], wanted[number]))
    assert different == [], sorted({each[0] for each in different})
    assert beyond_count > 10


def test_as_of_now_an_lsn_a_time_and_offsets(snapshots: Snapshots, database: Database) -> None:
    deployment = snapshots.deployment
    states: list[tuple[LSN, int, list[Any]]] = []
    changes = (
        # First: behind the cleaner's lag a changed key makes what is before it unknown, see cdc.spark.snapshot.past.
        "UPDATE account SET id = id + 1000 WHERE id % 7 = 0",
        "INSERT INTO account SELECT n, n, 'new' FROM generate_series(51, 60) n",
        "UPDATE account SET balance = balance + 0.5 WHERE id % 3 = 0",
        "DELETE FROM account WHERE id % 5 = 0",
        "INSERT INTO account SELECT n, n, 'again' FROM generate_series(5, 60, 10) n",
    )
    for change in changes:
        database.execute(change)
        (lsn, now_us), *_ = database.execute(
            "SELECT pg_current_wal_insert_lsn()::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )
        states.append((LSN.parse(lsn), now_us, source_rows(database)))
    assert snapshots.rows(TABLE) == source_rows(database)
    deployment.wait_published()
    for lsn, now_us, rows in states:
        assert snapshots.rows(TABLE, AsOfLsn(lsn=str(lsn))) == rows
        assert snapshots.rows(TABLE, AsOfTime(time_us=now_us)) == rows
    ends = snapshots.take(TABLE)[0].tables[0].end_offsets
    offsets = AsOfOffsets(offsets={deployment.topic(TABLE): dict(enumerate(ends))})
    database.execute("DELETE FROM account")
    deployment.wait_published()
    manifest, found = snapshots.take(TABLE, as_of=offsets)
    assert sorted(tuple(row)[:-1] for row in found[TABLE].collect()) == states[-1][2]
    assert manifest.lsn is None
    assert snapshots.rows(TABLE) == []


def test_tables_are_of_one_commit_while_others_write(snapshots: Snapshots, database: Database) -> None:
    database.execute("INSERT INTO other SELECT n, -n FROM generate_series(1, 50) n")
    both = "UPDATE account SET balance = balance + {0}; UPDATE other SET balance = balance - {0}"
    for number in range(10):
        database.execute(both.format(number))
    manifest, found = snapshots.take(TABLE, "public.other")
    sums = [frame.groupBy().sum("balance").collect()[0][0] for frame in found.values()]
    assert sum(sums) == 0
    assert [each.rows for each in manifest.tables] == [50, 50]
    again, _ = snapshots.take(TABLE, "public.other")
    assert [each.hash for each in again.tables] == [each.hash for each in manifest.tables]
    database.execute("UPDATE other SET balance = 0 WHERE id = 1")
    changed, _ = snapshots.take(TABLE, "public.other")
    assert changed.tables[0].hash == manifest.tables[0].hash
    assert changed.tables[1].hash != manifest.tables[1].hash


def test_points_that_cannot_be_answered_are_refused(snapshots: Snapshots, database: Database) -> None:
    with pytest.raises(PastErased, match="holds every row only from"):
        snapshots.take(TABLE, as_of=AsOfLsn(lsn="0/100"))
    with pytest.raises(NotCaughtUp, match="has published only up to"):
        snapshots.take(TABLE, as_of=AsOfLsn(lsn="FFFF/0"))
    future = int(datetime(2999, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    with pytest.raises(JobError, match="in the future"):
        snapshots.take(TABLE, as_of=AsOfTime(time_us=future))
    with pytest.raises(JobError, match="has no offset 99999"):
        snapshots.take(TABLE, as_of=AsOfOffsets(offsets={snapshots.deployment.topic(TABLE): {0: 99999}}))
    assert list(snapshots.folder.glob("[!.]*")) == []
    assert list(snapshots.folder.glob(".unfinished*")) == []
