"""Section lake: ``cdc mirror`` into Delta and Iceberg, beside a bare streaming query that merges the same rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import psycopg
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from cdc.base.lsn import LSN
from cdc.cli.options import load_config
from cdc.contract.jobspec.mirror import RECORDS_PER_BATCH, LakeFormat, MirrorJob
from cdc.ops.jobs.describe import describe_deployment, spark_settings
from cdc.spark.kafka_options import connector_options
from cdc.spark.mirror.formats import format_of, with_format
from cdc.spark.mirror.main import mirror
from cdc.spark.session import open_session
from tests.benchmarks import workload
from tests.benchmarks.backfill import wait_for_backfill
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.processes import BenchmarkFailed, Program
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers

BARE: Final = "bare MERGE into Delta"
MIRRORS: Final[Mapping[str, LakeFormat]] = {"mirror to Delta": "delta", "mirror to Iceberg": "iceberg"}
CORES: Final = 2
WARM_KEYS: Final = 1_000
COLUMNS = (
    Column("wall_s", "wall s", 1),
    Column("rate", "records/s", 0),
    Column("cpu_s", "Spark CPU s/M", 1),
    Column("files", "files", 0),
    Column("mb", "MB", 1),
)
NOTES = (
    f"Spark on local[{CORES}], started before, and warm: each contender has copied a topic of {WARM_KEYS:,} keys",
    "wall: until everything is in the table, the cut included; CPU: of the JVM and its Python workers, per million "
    "records",
    f"{BARE}: readStream, from_json with a known schema, the last record of each key in the batch, foreachBatch with "
    "MERGE; batches are as large as the mirror's; it checks nothing. Iceberg stands beside it, too",
    "files, MB: the table's data files on the disk, those of former versions included",
    "count and sums of every table are compared with the source",
)
_SUMS: Final = "count(*), sum(id), sum(customer_id), sum(amount)"
_ROW: Final = (
    "id bigint, customer_id int, status string, amount decimal(12,2), note string, tags string, created_at timestamp, "
    "updated_at timestamp, payload string"
)
_MERGE: Final = """
MERGE INTO delta.`{}` held USING bare_batch batch ON held.id = batch.id
WHEN MATCHED AND batch.is_deleted THEN DELETE WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND NOT batch.is_deleted THEN INSERT *
"""


class _Topic(NamedTuple):
    """A topic that a bridge fills.

    Attributes:
        deployment: whose topic it is.
        conn: a session in its source.
        bridge: the bridge, which runs.
        folder: for lakes.
        job: what a mirror would copy; each contender takes its own path.
    """

    deployment: Deployment
    conn: psycopg.Connection[Any]
    bridge: Program
    folder: Path
    job: MirrorJob

    def wait(self) -> None:
        """Waits until everything that is committed is published."""
        row = self.conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        wait_until_published(self.deployment, self.bridge, LSN.parse(row[0]))

    def sums(self) -> tuple[Any, ...]:
        """Returns count and sums of the source's table."""
        row = self.conn.execute(f"SELECT {_SUMS} FROM orders".encode()).fetchone()
        assert row is not None
        return tuple(row)


def measure(servers: Servers, keys: int, runs: int) -> Iterator[Section]:
    """Copy a topic of three versions of each key, then one more version of a hundredth of them."""
    title = f"Lake: {keys:,} keys in three versions into an empty table"
    initial = Section(title, COLUMNS, ("wall_s", BARE), list(NOTES))
    changes = Section(
        f"Lake, changes: 1 % of {keys:,} keys into the same table", COLUMNS, ("wall_s", BARE), list(NOTES)
    )
    settings = with_format(spark_settings(f"local[{CORES}]"), "delta")
    with open_session(settings, "bench") as spark:
        with _filled(servers, "bench_lake_warm", WARM_KEYS) as topic:
            _all(spark, topic, "warm", 3 * WARM_KEYS)
            _change(topic)
            _all(spark, topic, "warm", WARM_KEYS // 100)
        with _filled(servers, "bench_lake", keys) as topic:
            for run in range(runs):
                for contender, figures in _all(spark, topic, str(run), 3 * keys):
                    initial.add(contender, figures)
                _change(topic)
                for contender, figures in _all(spark, topic, str(run), keys // 100):
                    changes.add(contender, figures)
    yield initial
    yield changes


@contextmanager
def _filled(servers: Servers, name: str, keys: int) -> Iterator[_Topic]:
    with workload.source(servers, name) as (dsn, conn):
        workload.fill(conn, "orders", keys)
        deployment = Deployment(name, dsn, servers.bootstrap, slot=name, snapshot="initial")
        with daemon("run", deployment, servers.directory) as bridge:
            wait_for_backfill(deployment, bridge)
            for _ in range(2):
                conn.execute("UPDATE orders SET amount = amount + 1")
            described = describe_deployment(load_config(deployment.write(servers.directory)))
            job = MirrorJob(
                spark=spark_settings(f"local[{CORES}]"),
                kafka=described.kafka,
                stream=described.stream,
                tables=described.tables,
                path=str(servers.directory),
                once=True,
            )
            topic = _Topic(deployment, conn, bridge, servers.directory / name, job)
            topic.wait()
            yield topic
            bridge.drain()
        workload.drop_slot(conn, name)


def _change(topic: _Topic) -> None:
    topic.conn.execute("UPDATE orders SET amount = amount + 1 WHERE id % 100 = 0")
    topic.wait()


def _all(spark: SparkSession, topic: _Topic, run: str, records: int) -> list[tuple[str, Figures]]:
    """Has each contender copy what its table of this run lacks."""
    measured = [
        (contender, _by_mirror(spark, topic, system, topic.folder / f"{run}-{system}", records))
        for contender, system in MIRRORS.items()
    ]
    return [*measured, (BARE, _by_hand(spark, topic, topic.folder / f"{run}-bare", records))]


def _by_mirror(spark: SparkSession, topic: _Topic, system: LakeFormat, path: Path, records: int) -> Figures:
    assert system != "parquet"
    job = topic.job.model_copy(update={"format": system, "path": str(path)})
    spent = _spent(spark, lambda: mirror(spark, job, threading.Event()))
    with closing(format_of(spark, system, path)) as lake:
        table = lake.table(topic.deployment.topic)
        if not table.exists():
            raise BenchmarkFailed(f"there is no table in {table.folder}")
        return _figures(table.rows(), topic, table.folder, spent, records)


def _by_hand(spark: SparkSession, topic: _Topic, path: Path, records: int) -> Figures:
    table = path / "orders"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({_ROW}, is_deleted boolean) USING delta").collect()
    of_key = Window.partitionBy("key").orderBy(fn.col("offset").desc())

    def merge(batch: DataFrame, _number: int) -> None:
        latest = batch.withColumn("place", fn.row_number().over(of_key)).where("place = 1")
        parsed = latest.select(
            fn.from_json(fn.col("value").cast("string"), _ROW).alias("row"),
            fn.get_json_object(fn.col("key").cast("string"), "$.id").cast("bigint").alias("key_id"),
        )
        rows = parsed.select("row.*", fn.col("row").isNull().alias("is_deleted"), "key_id")
        rows.withColumn("id", fn.col("key_id")).drop("key_id").createOrReplaceTempView("bare_batch")
        batch.sparkSession.sql(_MERGE.format(table)).collect()

    def copy() -> None:
        reader = spark.readStream.format("kafka").options(**connector_options(topic.job.kafka))
        records_of_topic = (
            reader.option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic.deployment.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(RECORDS_PER_BATCH))
            .load()
            .select("key", "value", "offset")
        )
        writer = records_of_topic.writeStream.foreachBatch(merge).trigger(availableNow=True)
        writer.option("checkpointLocation", str(path / "checkpoint")).start().awaitTermination()

    spent = _spent(spark, copy)
    return _figures(spark.read.format("delta").load(str(table)), topic, table, spent, records)


def _spent(spark: SparkSession, copy: Callable[[], None]) -> tuple[float, float]:
    """Returns seconds of the clock, and of the JVM's and its workers' CPU."""
    before_s, started = _cpu_s(spark), time.perf_counter()
    copy()
    return time.perf_counter() - started, _cpu_s(spark) - before_s


def _cpu_s(spark: SparkSession) -> float:
    context: Any = spark.sparkContext
    jvm = psutil.Process(context._gateway.proc.pid)
    spent = 0.0
    for process in (jvm, *jvm.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # its parent has its times now
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return spent


def _figures(rows: DataFrame, topic: _Topic, table: Path, spent: tuple[float, float], records: int) -> Figures:
    found = tuple(rows.selectExpr(*_SUMS.split(", ")).collect()[0])
    if found != (expected := topic.sums()):
        raise BenchmarkFailed(f"{table} has {found}; the source: {expected}")
    wall_s, cpu_s = spent
    sizes = [each.stat().st_size for each in table.rglob("*.parquet") if "_delta_log" not in each.parts]
    return {
        "wall_s": wall_s,
        "rate": records / wall_s,
        "cpu_s": cpu_s * 1e6 / records,
        "files": len(sizes),
        "mb": sum(sizes) / 1e6,
    }
