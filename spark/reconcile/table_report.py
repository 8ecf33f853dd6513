"""Compares one table on all sides and writes its part of the report, even if something keeps it from a verdict."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.certificate import CertifiedFold
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.keys_file import MAX_KEYS, RepairableKey, keys_file, write_keys
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError
from cdc.spark.offsets import Brokers
from cdc.spark.reconcile import summary
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.reconcile.comparison import Comparison
from cdc.spark.reconcile.failures import Unverifiable, as_job_errors
from cdc.spark.reconcile.origin import Origins
from cdc.spark.reconcile.replica_run import ComparedReplica, RepairedReplica, compare_replica, replica_side
from cdc.spark.reconcile.selection import only_compared, why_nothing
from cdc.spark.reconcile.table_run import Compared, TableRun
from cdc.spark.reconcile.together import Together
from cdc.spark.report.model import (
    Bar,
    Counts,
    Histograms,
    Repair,
    ReplicaCounts,
    Sample,
    SkippedColumn,
    Stage,
    TableReport,
    Verdict,
    by_class,
)
from cdc.spark.source.held_snapshot import connect, reading
from cdc.spark.stored import store

_NO_REPLICA = ComparedReplica(None, None)

_WAL_END = """
SELECT pg_catalog.pg_current_wal_lsn() - '0/0', r.pid IS NOT NULL, extract(epoch FROM r.flush_lag)::float8
FROM (VALUES (%s)) AS wanted (slot)
LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = wanted.slot
LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
"""
"""Asks for the lag in bytes and seconds. Bytes may hold no commit at all; only the walsender knows the seconds."""


class JudgedTable(NamedTuple):
    """The report of a table; ``broke_off`` means that work is left for a resumed run; ``fold`` as in ``Compared``."""

    report: TableReport
    broke_off: bool
    fold: CertifiedFold | None = None


class _Reason(NamedTuple):
    """Why a table is not verified; both texts are empty if it is."""

    text: str = ""
    remedy: str = ""


class Judge:
    """Compares tables with the tools of one run.

    Args:
        job: the run.
        spark, brokers, bridge: the session, the cluster and the bridge's progress.
        server: system identifier and timeline of the source.
        work: the run's folder for files that it needs until it ends.
    """

    def __init__(
        self, job: ReconcileJob, spark: SparkSession, brokers: Brokers, bridge: BridgeProgress, server: str, work: Path
    ) -> None:
        self._job = job
        self._spark = spark
        self._brokers = brokers
        self._bridge = bridge
        self._server = server
        self._work = work
        self._replicas: Mapping[str, ReplicaCounts] = {}
        self._side = replica_side(spark, job)
        self._repaired = None if self._side is None else RepairedReplica(job, self._side)

    def small_tables(self) -> None:
        """Compares the small tables together, so that those found equal need no further work in ``table``."""
        tools = self._tools()
        self._replicas = Together(self._job, tools, self._bridge, self._work, _say).compare()

    def table(self, table: JobTable) -> JudgedTable:
        """Compares one table. An error that concerns only this table goes into its report and is not raised."""
        job = self._job
        tools = self._tools()
        compared: Compared | None = None
        replica, reason = _NO_REPLICA, _Reason()
        lag: tuple[int | None, float | None] = (None, None)
        try:
            with as_job_errors():
                lag = lag_of(job, self._bridge)
                compared = TableRun(job, table, tools, self._bridge, self._server, self._work, _say).compare()
                if (equal := self._replicas.get(table.qualified_name)) is not None:
                    replica = ComparedReplica(equal, None)
                elif self._repaired is not None and table.replica is not None:
                    self._repaired.wait()
                    replica = compare_replica(job, table, tools, self._work, _say, by_position=self._bridge.may_be_late)
                    reason = _Reason(replica.why_not)
        except JobError as error:
            reason = _Reason(error.message, error.remedy)
        except Unverifiable as error:
            reason = _Reason(str(error))
        broke_off = bool(reason.text) and not replica.why_not
        try:
            with as_job_errors():
                report = _assembled(job, table, tools, compared, replica, reason)
        except JobError as error:
            broke_off, reason = True, _Reason(error.message, error.remedy)
            report = _assembled(job, table, tools, None, _NO_REPLICA, reason)
        told = report.model_copy(update={"lag_bytes": lag[0], "lag_s": lag[1]})
        return JudgedTable(told, broke_off, None if compared is None else compared.fold)

    def _tools(self) -> Comparison:
        job, name = self._job, self._job.stream.name
        origins = Origins(job.source, self._brokers, self._bridge, name, job.fence_timeout_s)
        return Comparison(self._spark, job.kafka, self._brokers, name, origins, self._side)


def _assembled(
    job: ReconcileJob,
    table: JobTable,
    tools: Comparison,
    compared: Compared | None,
    replica: ComparedReplica,
    reason: _Reason,
) -> TableReport:
    found = None if compared is None else compared.findings
    counts = compared.counts if compared else Counts()
    shown = only_compared(job, table)
    samples = _samples(job, counts, found, replica)
    first = compared.rounds[0] if compared else None
    why = reason.text or _why_open(counts, replica) or (why_nothing(job, counts.source_rows) if compared else "")
    differs = counts.differences + (replica.counts.differences if replica.counts else 0) > 0
    verdict: Verdict = "different" if differs else "not_verified" if why else "identical"
    with tools.watch.timing("report"):
        causes: tuple[Bar, ...] = ()
        histograms = Histograms()
        if found is not None and counts.differences:
            causes, histograms = summary.charts(found)
        report = TableReport(
            table=table.qualified_name,
            topic=table.topic,
            verdict=verdict,
            reason=reason.text if differs else why,
            remedy=reason.remedy,
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
            columns=summary.columns(found, table) if found is not None and counts.value_mismatch else (),
            causes=causes,
            histograms=histograms,
            samples=samples,
            stages=(),
            keys_path=keep_keys(job, table, [(found, "topic"), (replica.findings, "replica")] if differs else []),
            repair=_repair(job, table, counts, replica),
        )
    stages = tuple(Stage(name=name, seconds=round(each, 3)) for name, each in tools.watch.seconds.items())
    return report.model_copy(update={"stages": stages})


def _samples(
    job: ReconcileJob, counts: Counts, found: DataFrame | None, replica: ComparedReplica
) -> tuple[Sample, ...]:
    """Returns samples of both sides, without a Spark job if the counts say that there are none."""
    samples: tuple[Sample, ...] = ()
    if found is not None and any(by_class(counts).values()):
        samples = summary.samples(found, "topic", job.samples)
    if replica.findings is not None:
        samples += summary.samples(replica.findings, "replica", job.samples)
    return samples


def _why_open(counts: Counts, replica: ComparedReplica) -> str:
    """Returns why a table without a known difference is not verified; empty if no key is in flight."""
    in_flight = counts.in_flight + (replica.counts.in_flight if replica.counts else 0)
    if counts.differences or not in_flight:
        return ""
    return (
        f"{in_flight:,} keys were still in flight after the last round; run again when they change less often, allow"
        " more rounds (--rounds), or raise topics.min_compaction_lag_ms above the time that a run takes"
    )


def keep_keys(job: ReconcileJob, table: JobTable, sides: Sequence[tuple[DataFrame | None, str]]) -> str:
    """Writes Parquet of every key that differs on either side; returns its path, or an empty text if none does."""
    frames = [summary.differing(frame).withColumn("side", fn.lit(side)) for frame, side in sides if frame is not None]
    if not frames:
        return ""
    whole = functools.reduce(DataFrame.unionByName, frames)
    path = f"{job.folder}/differing/{table.topic}"
    store(_without_values(whole) if job.redact else whole, path)
    if job.keys_to is not None:
        _write_keys(table, job.keys_to, whole)
    return path


def _without_values(differing: DataFrame) -> DataFrame:
    """Keeps what anyone may see. Hashes of keys go as well: a short key can be found by trying."""
    kind = fn.substring_index("cause", ":", 1)
    return differing.withColumn("cause", kind).drop("source", "other", "key", "key_bytes", "key_hash")


def _write_keys(table: JobTable, folder: str, differing: DataFrame) -> None:
    chosen = differing.select("key_bytes", "partition", "home_partition").distinct().limit(MAX_KEYS + 1).collect()
    strays = (row["partition"] if row["partition"] != row["home_partition"] else None for row in chosen)
    write_keys(
        Path(keys_file(folder, table.topic)),
        [RepairableKey(bytes(row["key_bytes"]), stray) for row, stray in zip(chosen, strays, strict=True)],
    )


def _repair(job: ReconcileJob, table: JobTable, counts: Counts, replica: ComparedReplica) -> Repair | None:
    done = job.repaired.get(table.qualified_name)
    if done is None:
        return None
    still = counts.differences + (replica.counts.differences if replica.counts else 0)
    open_ones = counts.in_flight + (replica.counts.in_flight if replica.counts else 0)
    return Repair(**done.model_dump(), verified=max(0, done.keys - still - open_ones), still_different=still)


def lag_of(job: ReconcileJob, bridge: BridgeProgress) -> tuple[int | None, float | None]:
    """Returns how far the bridge is behind, in bytes of WAL, and in seconds if the slot has a reader."""
    bridge.catch_up()
    with contextlib.closing(connect(job.source)) as conn, reading("asking for the WAL position"):
        row = conn.execute(_WAL_END, (job.stream.slot,)).fetchone()
        assert row is not None
    end, is_read, lag_s = row
    return max(0, int(end) - bridge.lsn), round(lag_s or 0.0, 3) if is_read else None


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
