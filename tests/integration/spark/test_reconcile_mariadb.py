"""``cdc reconcile`` with a replica in MariaDB: the texts of its values, one moment, and damage that is found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.header import UPDATE, HeaderStamp
from cdc.contract.jobspec.deployment import JobColumn, JobTable, MariadbSettings, SparkSettings
from cdc.contract.kinds import kind_of
from cdc.contract.ports import StoredRecord
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.lab.stack import Kafka
from cdc.ops.jobs.describe import TOPIC_FORMS
from cdc.sink.dialects import open_replica
from cdc.spark.errors import SourceUnreadable
from cdc.spark.replicas.mariadb import MariadbDriver
from cdc.spark.replicas.texts import StoredRows, hashed
from tests.integration.sink.test_databases import apply, config_of, session
from tests.support.file_replicas import deployed_to_file
from tests.support.mariadb_server import MariadbDatabase, MariadbServer, fresh_mariadb
from tests.support.reconciling import job_for, reconciled, table_of
from tests.support.servers import Database

COLUMNS = {
    "id": ("int4", "7", "7"), "b": ("bool", "true", "t"), "s": ("int2", "-7", "-7"),
    "o": ("oid", "4000000000", "4000000000"),
    "f": ("float4", "0.1", "0.1"), "d": ("float8", "1e+15", "1e+15"), "n": ("numeric(9,7)", '"0.0000001"', "0.0000001"),
    "u": ("numeric", '"NaN"', "NaN"), "y": ("date", '"0044-03-15"', "0044-03-15"),
    "t": ("timestamp", '"2026-11-20 12:13:14.5"', "2026-11-20 12:13:14.5"),
    "z": ("timestamptz", '"2026-11-20 12:13:14+00"', "2026-11-20 12:13:14+00"),
    "x": ("bytea", '"\\\\x00ff"', "\\x00ff"), "j": ("jsonb", '{"a": 1.10}', '{"a": 1.10}'),
    "null": ("text", "null", None),
    'q"`': ("text", '"é\\n"', "é\n"), "a": ("bool[]", "[true,null]", "{t,NULL}"),
}  # fmt: skip
"""Type, JSON in the topic, text of PostgreSQL."""


@dataclass
class MariadbTables:
    """A replica in MariaDB; what ``deployed_to_file`` asks of it."""

    database: MariadbDatabase
    is_exclusive: bool = False
    beyond: str = "$."

    @property
    def url(self) -> str:
        return self.database.url

    def cut(self) -> LSN | None:
        if not self.database.execute("SHOW TABLES LIKE 'cdc_cut'"):
            return None
        found = self.database.execute("SELECT lsn FROM cdc_cut")
        return LSN.parse(found[0][0]) if found and found[0][0] else None

    def states(self) -> dict[str, str]:
        return dict(self.database.execute("SELECT replica_table, state FROM cdc_mirrored_table"))

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return self.database.execute(f"SELECT {', '.join(columns)} FROM {table}")

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return [self.database.execute(each) for each in statements][-1]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.pg(16, matrix=False)
def test_damage_is_found_beside_the_sink(
    database: Database, kafka: Kafka, mariadb: MariadbServer, tmp_path: Path,
    spark: SparkSession, spark_settings: SparkSettings,
) -> None:  # fmt: skip
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, price numeric(10,2), at timestamptz);"
        "CREATE TABLE lines (id text PRIMARY KEY, size real);"
        "INSERT INTO orders SELECT i, i * 1.10, now() - i * interval '1.000001 s' FROM generate_series(1, 500) i;"
        "INSERT INTO lines SELECT 'é' || i, i / 7.0 FROM generate_series(1, 500) i"
    )
    with (
        fresh_mariadb(mariadb) as tables,
        deployed_to_file(database, kafka.bootstrap, MariadbTables(tables), tmp_path) as deployment,
    ):
        deployment.start()
        deployment.wait_backfilled("public.orders", "public.lines")
        deployment.wait_mirrored()
        tables.execute("DELETE FROM orders WHERE id = 7")
        tables.execute("UPDATE orders SET price = price + 0.01 WHERE id = 8")
        tables.execute("UPDATE orders SET at = at + INTERVAL 1 MICROSECOND WHERE id = 9")
        tables.execute("INSERT INTO orders VALUES (900, 1, NULL)")
        report = reconciled(job_for(deployment, tmp_path / "run", spark_settings, rounds=0), spark)
        orders, lines = table_of(report, "public.orders"), table_of(report, "public.lines")
        assert (lines.verdict, orders.verdict, report.exit_code) == ("identical", "different", 1), (lines, orders)
        found = orders.replica
        assert found is not None
        assert (found.missing_in_replica, found.extra_in_replica, found.value_mismatch) == (1, 1, 2), orders.samples
        assert (found.identical, found.table) == (497, f"{tables.name}.orders")
        deployment.stop()


def test_each_value_has_its_text_and_the_snapshot_stays(mariadb: MariadbServer) -> None:
    schema = TableSchema(
        "00000000000000aa", "public", "items", "x.public.items", ("id",),
        tuple(SchemaColumn(name, sql_type) for name, (sql_type, *_) in COLUMNS.items()),
    )  # fmt: skip
    value = "{" + ",".join(f"{json.dumps(name)}:{form}" for name, (_, form, _) in COLUMNS.items()) + "}"
    header = HeaderStamp(LSN(100), 7, 0).header(UPDATE, 0, schema.fingerprint)
    record = StoredRecord(schema.topic, 0, 0, b'{"id":7}', value.encode(), header)
    table = JobTable(
        namespace="n", name="items", topic=schema.topic, key=("id",),
        columns=tuple(
            JobColumn(name=name, sql_type=kind, kind=TOPIC_FORMS[kind_of(kind).kind], is_array=kind.endswith("[]"))
            for name, (kind, *_) in COLUMNS.items()
        ),
    )  # fmt: skip
    with fresh_mariadb(mariadb) as database:
        at = MariadbSettings(host="127.0.0.1", port=mariadb.port, database=database.name, user="root")
        driver, table = MariadbDriver(at), table.model_copy(update={"namespace": database.name})
        with driver.begin() as transaction:
            assert not transaction.has_replica()
        with session(open_replica(config_of({"url": database.url}), application_name="test"), schema) as writer:
            apply(writer, 100, record)
        with driver.begin() as transaction:
            database.execute("UPDATE items SET s = 8")
            assert transaction.has_replica()
            assert transaction.execute("SELECT name, lsn FROM cdc_cut WHERE name = ?", ("shop",)).fetchone() == (
                "shop", "0/64",
            )  # fmt: skip
            ((row,),) = [transaction.rows(table).fetchmany(5)]
        stored = StoredRows(table)
        texts = stored.texts(row)
        assert dict(zip(COLUMNS, texts, strict=True)) == {name: text for name, (*_, text) in COLUMNS.items()}
        assert stored.hashes(texts) == (hashed('{"id":7}'), hashed(value))
        with (
            pytest.raises(SourceUnreadable, match="Unknown column"),
            driver.begin() as found,
        ):
            found.rows(table.model_copy(update={"columns": (JobColumn(name="gone", sql_type="text", kind="text"),)}))
        nowhere = MariadbDriver(at.model_copy(update={"database": "nowhere"}))
        with pytest.raises(SourceUnreadable, match="Unknown database"), nowhere.begin():
            pass
        with closing(mariadb.connect(database.name)) as admin, admin.cursor() as cursor:
            assert cursor.execute("SELECT s FROM items WHERE s = 8") == 1
