"""Sources that are not as every other: what is equal there is found equal, and what is not is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.partition import partition_of
from cdc.lab.stack import Kafka, PostgresMajor
from cdc.spark.report.model import Counts, TableReport
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.reconciling import job_for, reconciled, table_of
from tests.support.servers import Database, Servers, fresh_database
from tests.support.topic_damage import Damage

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

WIDE = 'public.Kunden "ä".`x`'
OWN_NAMES = (
    "block",
    "key",
    "key_hash",
    "value_hash",
    "chosen",
    "source_columns",
    "k",
    "v",
    "d",
    "{heap}",
    "a?b",
    "q.r",
)
DOCUMENTS = 101
"""More than a function of PostgreSQL takes arguments."""


def create_wide(database: Database) -> None:
    """Over a hundred columns, keys and values beyond ASCII, names of the job's own, a column that goes later."""
    columns = [sql.SQL("gone text"), *(sql.SQL("{} text").format(sql.Identifier(name)) for name in OWN_NAMES)]
    columns += [sql.SQL("{} jsonb").format(sql.Identifier(f"j{number}")) for number in range(DOCUMENTS)]
    table = sql.Identifier(WIDE.removeprefix("public."))
    with database.connect(client_encoding="UTF8") as connection:
        connection.execute(
            sql.SQL("CREATE TABLE {} (größe text PRIMARY KEY, {})").format(table, sql.SQL(", ").join(columns))
        )
        insert = sql.SQL("INSERT INTO {} (größe, gone, key, {}, j0, j1) VALUES (%s, 'x', 'naïve', 'ÿ?', %s, NULL)")
        for key, document in (("abc", "null"), ("café", "{}"), ("ßé", "null")):
            connection.execute(insert.format(table, sql.Identifier("a?b")), (key, document))
        connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN later int").format(table))


def create_others(database: Database, replica: Database) -> None:
    """A key and nothing else, with children of its own; no rows; partitions, in the replica too."""
    database.execute("CREATE TABLE bare (id int PRIMARY KEY)")
    database.execute("CREATE TABLE heir (more text) INHERITS (bare)")
    database.execute("INSERT INTO bare SELECT generate_series(1, 9)")
    database.execute("INSERT INTO heir VALUES (100, 'of the child alone')")
    database.execute("CREATE TABLE empty (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100)")
    database.execute("INSERT INTO part SELECT n, 'x' FROM generate_series(1, 50) n")
    replica.execute("CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY HASH (id)")
    replica.execute("CREATE TABLE part_a PARTITION OF part FOR VALUES WITH (modulus 1, remainder 0)")


@pytest.mark.long
def test_a_latin1_database_with_wide_odd_and_partitioned_tables(
    servers: Servers, pg_major: PostgresMajor, replica: Database, kafka: Kafka, tmp_path: Path,
    spark: SparkSession, spark_settings: SparkSettings,
) -> None:  # fmt: skip
    with fresh_database(servers.of(pg_major), encoding="LATIN1") as database:
        create_wide(database)
        create_others(database, replica)
        tables = {"tables": [WIDE, "public.bare", "public.empty", "public.part"]}
        with deployed(database, kafka.bootstrap, replica, tmp_path, {"source": tables}) as deployment:
            deployment.start()
            deployment.wait_backfilled()
            # Described now, read later: a list of partitions made here would be out of date.
            job = job_for(deployment, tmp_path / "whole", spark_settings)
            database.execute("CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200)")
            database.execute("INSERT INTO part SELECT n, 'x' FROM generate_series(101, 150) n")
            deployment.wait_mirrored()
            report = reconciled(job, spark)
            rows = {each.table: each.counts.source_rows for each in report.tables}
            for each in report.tables:
                told = (each.table, each.reason, each.counts, each.replica, each.samples)
                if each.table == "public.empty":  # of which the sink has not heard
                    assert (each.counts, each.reason) == (Counts(), "replica: the sink has not mirrored this table yet")
                else:
                    assert each.verdict == "identical", told
                    assert each.replica is not None, told
                    assert each.replica.rows == each.counts.source_rows, told
            assert rows == {WIDE: 3, "public.bare": 9, "public.empty": 0, "public.part": 100}
            look_again_after_a_dropped_column(deployment, tmp_path, spark, spark_settings)
            deployment.stop()


def look_again_after_a_dropped_column(
    deployment: Deployment, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """Records of the older definition count their documents ``null`` by it; one of them is damaged."""
    table = sql.Identifier(WIDE.removeprefix("public."))
    with deployment.source.connect(client_encoding="UTF8") as connection:
        connection.execute(sql.SQL("ALTER TABLE {} DROP COLUMN gone").format(table))
        connection.execute(sql.SQL("INSERT INTO {} (größe, j1) VALUES ('new', 'null')").format(table))
    deployment.wait_mirrored()
    (record,) = (each for each in deployment.records(WIDE) if each.key == '{"größe":"café"}'.encode())
    assert record.value is not None
    damage = Damage(deployment)
    damage.write(WIDE, record.key or b"", record.value.replace('"naïve"'.encode(), b'"naive"'), header=record.header)
    damage.done()
    job = job_for(deployment, tmp_path / "dropped", spark_settings, tables=[WIDE, "public.empty"], replica=None)
    found, empty = reconciled(job, spark).tables
    assert (empty.verdict, empty.counts) == ("identical", Counts())
    assert (found.verdict, found.counts.identical, found.counts.value_mismatch) == ("different", 3, 1), found
    (sample,) = found.samples
    assert (sample.key, sample.differing) == ('{"größe":"café"}', ("key",))
    assert (sample.source or {})["key"] == "naïve"


def test_a_copied_topic_whose_keys_lie_where_they_do_not_belong(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    database.execute("CREATE TABLE client (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO client SELECT n, 'n' FROM generate_series(1, 20) n")
    deployment = deploy(topics={"partitions": 2}, snapshot={"mode": "never"})
    deployment.start_bridge()
    deployment.wait_published()
    copied = Damage(deployment)
    for number in range(1, 21):
        key, value = b'{"id":%d}' % number, b'{"id":%d,"name":"n"}' % number
        home = partition_of(key, 2)
        copied.write("public.client", key, value, home if number % 4 else 1 - home)
    copied.done()

    def run(name: str, state: str) -> TableReport:
        job = job_for(deployment, tmp_path / name, spark_settings, replica=None, state=state)
        return table_of(reconciled(job, spark), "public.client")

    state = str(tmp_path / "state")
    for found in (run("kept", state), run("kept-again", state)):
        # The others are right, and yet no bridge has written them.
        assert (found.verdict, found.counts.missing_in_topic, found.counts.foreign) == ("different", 5, 15), found
        assert [(each.label, each.count) for each in found.causes] == [("foreign record", 15), ("partition move", 5)]
    assert found.mode == "incremental"
    deployment.stop()


def test_a_row_in_a_wrong_partition_is_the_topics_fault_and_not_the_replicas(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """A sink leaves it out, and the replica was said to lack it."""
    database.execute("CREATE TABLE client (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO client SELECT n, 'n' FROM generate_series(1, 20) n")
    deployment = deploy(topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    record = next(each for each in deployment.records("public.client") if each.key == b'{"id":4}')
    stray, away = Damage(deployment), 1 - partition_of(b'{"id":4}', 2)
    stray.write("public.client", b'{"id":4}', b'{"id":4,"name":"else"}', away, record.header)
    stray.write(
        "public.client", b'{"id":99}', b'{"id":99,"name":"n"}', 1 - partition_of(b'{"id":99}', 2), record.header
    )
    stray.done()
    database.execute("INSERT INTO client VALUES (21, 'so that the sink cuts')")
    deployment.wait_mirrored()
    found = table_of(reconciled(job_for(deployment, tmp_path / "run", spark_settings), spark), "public.client")
    assert (found.counts.extra_in_topic, found.counts.differences) == (2, 2), found
    assert found.replica is not None
    assert (found.replica.identical, found.replica.differences, found.replica.in_flight) == (21, 0, 0), found
    deployment.stop()
