"""The job: every table in turn, one report at the end. What could not be compared is *not verified*, never *equal*."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.spark.errors import JobError, SourceUnreadable
from cdc.spark.job import Table
from cdc.spark.offsets import Brokers
from cdc.spark.reconcile import summary
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.reconcile.comparison import Comparison, Stopwatch, only_compared
from cdc.spark.reconcile.held_snapshot import connect, reading
from cdc.spark.reconcile.job import ReconcileJob
from cdc.spark.reconcile.keys_file import MAX_KEYS, RepairableKey, keys_file, write_keys
from cdc.spark.reconcile.replica_run import ComparedReplica, compare_replica
from cdc.spark.reconcile.table_run import Compared, TableRun, Unverifiable
from cdc.spark.report.model import (
    Counts,
    Engine,
    Histograms,
    Repair,
    Report,
    SkippedColumn,
    Source,
    Stage,
    TableReport,
    Verdict,
)
from cdc.spark.report.redact import redacted
from cdc.spark.report.text import as_text
from cdc.spark.report.write import write_all
from cdc.spark.session import CONNECTOR_VERSION, open_session
from cdc.spark.stored import store

_EXIT_CODES: Final[dict[Verdict, int]] = {"identical": 0, "different": 1, "not_verified": 2}


def main(document: str) -> int:
    """Run it; the report goes to the job's folder, its text to standard output.

    Raises:
        JobError: nothing could be compared at all.
    """
    job = ReconcileJob.model_validate_json(document)
    report = reconcile(job, open_session(job.spark, f"cdc reconcile {job.stream.name}"))
    written = write_all(report, Path(job.folder))
    sys.stdout.write(as_text(report) + f"\nreport: {written.html}\n")
    return report.exit_code


def reconcile(job: ReconcileJob, session: AbstractContextManager[SparkSession]) -> Report:
    """Compare; nothing is printed but progress.

    Args:
        job: what.
        session: entered when the servers were seen to be there.

    Raises:
        JobError: nothing could be compared at all.
    """
    started, watch = _now(), Stopwatch()
    with ExitStack() as stack:
        source = _source(job)
        brokers = Brokers(job.kafka)
        stack.callback(brokers.close)
        bridge = BridgeProgress(job.kafka, job.stream, brokers)
        stack.callback(bridge.close)
        bridge.catch_up()
        if bridge.system_identifier != source.system_identifier:
            raise SourceUnreadable(
                f"the topics were written from server {bridge.system_identifier}, and {source.host}:{source.port} is"
                f" {source.system_identifier}",
                remedy="point source.dsn to the server that the bridge reads",
            )
        with watch.timing("start of Spark"):
            spark = stack.enter_context(session)
        tables = tuple(_table_report(job, each, spark, brokers, bridge) for each in job.tables)
        report = Report(
            run=job.run,
            started_at=started,
            ended_at=_now(),
            verdict=_worst(tables),
            exit_code=_EXIT_CODES[_worst(tables)],  # type: ignore[arg-type]
            source=source,
            kafka=job.kafka.options["bootstrap.servers"],
            engine=Engine(
                tool_version=job.tool_version,
                spark_version=spark.version,
                connector_version=CONNECTOR_VERSION,
                master=job.spark.master,
            ),
            redacted=job.redact,
            stages=tuple(Stage(name=name, seconds=seconds) for name, seconds in watch.seconds.items()),
            tables=tables,
        )
    return redacted(report) if job.redact else report


def _table_report(
    job: ReconcileJob, table: Table, spark: SparkSession, brokers: Brokers, bridge: BridgeProgress
) -> TableReport:
    tools = Comparison(spark, job.kafka, brokers, job.connections)
    lag_bytes, lag_s = _lag(job, bridge)
    compared: Compared | None = None
    replica, reason, remedy = ComparedReplica(None, None), "", ""
    try:
        with _spark_errors():
            compared = TableRun(job, table, tools, bridge, _say).compare()
            if job.replica is not None and table.replica is not None:
                replica = compare_replica(job, table, tools, _say)
                reason = replica.why_not and f"replica: {replica.why_not}"
    except JobError as error:
        reason, remedy = error.message, error.remedy
    except Unverifiable as error:
        reason = str(error)
    with _spark_errors():
        report = _assembled(job, table, tools, compared, replica, reason)
    return report.model_copy(update={"lag_bytes": lag_bytes, "lag_s": lag_s, "remedy": remedy})


def _assembled(
    job: ReconcileJob,
    table: Table,
    tools: Comparison,
    compared: Compared | None,
    replica: ComparedReplica,
    reason: str,
) -> TableReport:
    found = None if compared is None or compared.findings is None else compared.findings.cache()
    counts = compared.counts if compared else Counts()
    shown = only_compared(table, job.columns)
    samples = () if found is None else summary.samples(found, "topic", job.samples)
    if replica.findings is not None:
        samples += summary.samples(replica.findings, "replica", job.samples)
    replica_differs = replica.counts is not None and replica.counts.differences > 0
    first = compared.rounds[0] if compared else None
    with tools.watch.timing("report"):
        report = TableReport(
            table=table.qualified_name,
            topic=table.topic,
            verdict=_verdict(counts, reason, replica_differs=replica_differs, replica=replica),
            reason=reason or _why_open(counts, replica),
            snapshot=first.snapshot if first else "",
            lsn=first.lsn if first else "",
            fence_wait_s=round(compared.fence_wait_s, 3) if compared else 0.0,
            lag_bytes=None,
            lag_s=None,
            passes=job.passes,
            mode=compared.mode if compared else "full",
            where=job.where,
            key_columns=table.key,
            columns_compared=shown,
            columns_skipped=tuple(
                SkippedColumn(name=each.name, reason="not asked for")
                for each in table.columns
                if each.name not in shown
            ),
            rules=(),
            offsets=compared.offsets if compared else (),
            counts=counts,
            replica=replica.counts,
            rounds=compared.rounds if compared else (),
            columns=() if found is None else summary.columns(found, table),
            causes=() if found is None else summary.causes(found),
            histograms=Histograms() if found is None else summary.histograms(found),
            samples=samples,
            stages=(),
            keys_path=_keep_keys(job, table, found, replica.findings),
            repair=_repair(job, table, counts, replica),
        )
    stages = tuple(Stage(name=name, seconds=round(each, 3)) for name, each in tools.watch.seconds.items())
    return report.model_copy(update={"stages": stages})


def _verdict(counts: Counts, reason: str, *, replica_differs: bool, replica: ComparedReplica) -> Verdict:
    if counts.differences or replica_differs:
        return "different"
    open_in_replica = replica.counts.in_flight if replica.counts else 0
    return "not_verified" if reason or counts.in_flight or counts.unverifiable or open_in_replica else "identical"


def _why_open(counts: Counts, replica: ComparedReplica) -> str:
    """Why a table without any known difference is not verified."""
    in_flight = counts.in_flight + (replica.counts.in_flight if replica.counts else 0)
    if counts.differences or not in_flight:
        return ""
    return (
        f"{in_flight:,} keys were still in flight after the last round; look again when they change less, allow more"
        " rounds (--rounds), or raise topics.min_compaction_lag_ms above the time that a run takes"
    )


def _keep_keys(job: ReconcileJob, table: Table, found: DataFrame | None, replica: DataFrame | None) -> str:
    """Parquet of every key that differs, on either side; its path, or nothing."""
    frames = [
        summary.differing(frame).withColumn("side", fn.lit(side))
        for frame, side in ((found, "topic"), (replica, "replica"))
        if frame is not None
    ]
    if not frames:
        return ""
    whole = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    if whole.isEmpty():
        return ""
    path = f"{job.folder}/differing/{table.topic}"
    kept = whole.drop("source", "other") if job.redact else whole
    store(kept, path)
    chosen = whole.select("key_bytes", "partition", "home_partition").distinct().limit(MAX_KEYS + 1).collect()
    strays = (row["partition"] if row["partition"] != row["home_partition"] else None for row in chosen)
    write_keys(
        Path(keys_file(job.folder, table.topic)),
        [RepairableKey(bytes(row["key_bytes"]), stray) for row, stray in zip(chosen, strays, strict=True)],
    )
    return path


def _repair(job: ReconcileJob, table: Table, counts: Counts, replica: ComparedReplica) -> Repair | None:
    done = job.repaired.get(table.qualified_name)
    if done is None:
        return None
    still = counts.differences + (replica.counts.differences if replica.counts else 0)
    open_ones = counts.in_flight + (replica.counts.in_flight if replica.counts else 0)
    return Repair(**done.model_dump(), verified=max(0, done.keys - still - open_ones), still_different=still)


def _lag(job: ReconcileJob, bridge: BridgeProgress) -> tuple[int | None, float | None]:
    """How far the bridge is behind the WAL, in bytes; and in seconds since its newest commit, if it is behind."""
    bridge.catch_up()
    with contextlib.closing(connect(job.source)) as conn, reading("asking for the WAL position"):
        row = conn.execute("SELECT pg_catalog.pg_current_wal_lsn() - '0/0'").fetchone()
        assert row is not None
    lag_bytes = max(0, int(row[0]) - bridge.lsn)
    behind = lag_bytes > 0 and bridge.commit_ts_us > 0
    return lag_bytes, round(max(0.0, time.time() - bridge.commit_ts_us / 1e6), 3) if behind else None


def _source(job: ReconcileJob) -> Source:
    with contextlib.closing(connect(job.source)) as conn, reading("asking who it is"):
        row = conn.execute(
            "SELECT pg_catalog.current_setting('server_version'), system_identifier::text"
            " FROM pg_catalog.pg_control_system()"
        ).fetchone()
        assert row is not None
    return Source(
        host=job.source.host,
        port=job.source.port,
        database=job.source.database,
        server_version=row[0],
        system_identifier=row[1],
    )


def _worst(tables: tuple[TableReport, ...]) -> Verdict:
    verdicts = {each.verdict for each in tables}
    order: tuple[Verdict, ...] = ("different", "not_verified", "identical")
    return next(each for each in order if each in verdicts)


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = next((line for line in lines if "Caused by" in line or "ERROR" in line), lines[0] if lines else "?")
        raise JobError(f"Spark failed: {told[:500]}", remedy="see the lines above, then try again") from error


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
