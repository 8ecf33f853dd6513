"""Compares a replica, at the LSN that it records, with the topic cut at the same LSN."""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from pyspark.sql import DataFrame

from cdc.base.lsn import LSN
from cdc.base.table_names import qualified
from cdc.contract.jobspec.deployment import JobTable, PostgresSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import NotCaughtUp
from cdc.spark.reconcile import summary
from cdc.spark.reconcile.chosen import chosen
from cdc.spark.reconcile.comparison import Comparison, Say, Sides, limited
from cdc.spark.reconcile.keys import Keys, keys_asked_for, keys_in
from cdc.spark.reconcile.second_look import read_findings
from cdc.spark.reconcile.selection import only_compared
from cdc.spark.reconcile.topic_records import RecordMoment
from cdc.spark.report.model import ReplicaCounts
from cdc.spark.source.held_snapshot import connect, hold, reading

_PAUSE_S: Final = 0.1
_REMEDY: Final = "allow a longer snapshot: --max-snapshot-seconds"


class ComparedReplica(NamedTuple):
    """The result of comparing a replica table; if it was not compared, ``why_not`` says why and the rest is None."""

    counts: ReplicaCounts | None
    findings: DataFrame | None
    why_not: str = ""


class RepairedReplica:
    """Waits for the replica to reach what was repaired. The tables of a run share the time that this may take.

    Otherwise a sink that stands still would hold up a run of a hundred tables for as many minutes.

    Args:
        job: the run.
    """

    def __init__(self, job: ReconcileJob) -> None:
        self._job = job
        self._deadline: float | None = None

    def wait(self) -> None:
        """Returns at once if nothing was repaired.

        Raises:
            NotCaughtUp: the replica did not get there in time, for this table or an earlier one.
        """
        job = self._job
        if not job.replica_lsn:
            return
        assert job.replica is not None
        lsn = LSN.parse(job.replica_lsn)
        self._deadline = self._deadline or time.monotonic() + job.fence_timeout_s
        replica = connect(job.replica, lock_timeout_s=job.fence_timeout_s)
        with contextlib.closing(replica) as conn, reading("waiting for the replica"):
            while True:
                cut = conn.execute("SELECT lsn::text FROM cdc.cut WHERE name = %s", (job.stream.name,)).fetchone()
                if cut is not None and cut[0] is not None and LSN.parse(cut[0]) >= lsn:
                    return
                if time.monotonic() > self._deadline:
                    raise NotCaughtUp(
                        f"the replica did not reach {lsn} within {job.fence_timeout_s:.0f} s",
                        remedy="check with cdc status whether the sink runs, or allow more time with --fence-timeout",
                    )
                time.sleep(_PAUSE_S)


def compare_replica(
    job: ReconcileJob, table: JobTable, tools: Comparison, work: Path, say: Say, *, by_position: bool
) -> ComparedReplica:
    """Compares the replica with the topic. Keys that differ are compared again until they agree or no round is left.

    The second round matters: a record written into the topic after the last cut is not in the replica yet.
    ``by_position`` is explained at ``RecordMoment``.
    """
    assert job.replica is not None
    assert table.replica is not None
    namespace, name = table.replica
    replica = replica_table(table)
    folder, compared = work / f"{table.topic}-replica", only_compared(job, table)
    keys, rows, beside = keys_asked_for(tools.spark, job, table), -1, 0
    lsn, why_not = LSN(0), ""
    findings: DataFrame | None = None
    # Ask once without a snapshot: if the table is not there yet, hold() would fail instead of saying why.
    # Somebody may hold a lock on the sink's own tables, in a migration say; we must not wait for ever.
    with contextlib.closing(connect(job.replica, lock_timeout_s=job.fence_timeout_s)) as conn:
        _, why_not = recorded(conn, job.stream.name, table, job.replica)
        if why_not:
            return ComparedReplica(None, None, why_not)
    for number in range(job.rounds + 1):
        say(
            f"{table.qualified_name}: comparing the replica {qualified(namespace, name)}"
            + (", again" if number else "")
        )
        at = f"{folder}/round-{number}"
        with ExitStack() as stack:
            held = stack.enter_context(hold(job.replica, table.replica, job.fence_timeout_s))
            stack.enter_context(limited(tools.spark, job.max_snapshot_s, _REMEDY))
            lsn, why_not = recorded(held.connection, job.stream.name, table, job.replica)
            if why_not:
                return ComparedReplica(None, None, why_not)
            extent = tools.brokers.extent(table.topic)
            sides = Sides(
                job.replica, replica, RecordMoment(lsn=lsn, by_position=by_position), compared, job.where, "replica"
            )
            if number == 0 and keys is None:
                looked, keys = tools.first_look(
                    sides, held, tools.hashes(extent, sides.origin), (0, 1), f"{at}/candidates"
                )
                rows = looked.source_rows
            keys = keys or Keys()
            judged = None if keys.is_empty else tools.second_look(sides, held, extent, keys, at)
            tools.brokers.refuse_another(extent)
            if judged is None:
                break
            findings, left_out = Keys(judged.keys).together(read_findings(tools.spark, f"{at}/findings")), 0
            if job.where is not None:
                findings, beside, left_out = chosen(findings, job.where, replica, held.connection, all_rows=rows < 0)
            rows = rows if rows >= 0 else judged.with_row - left_out - beside
        keys = keys_in(findings.where("difference <> 'identical'"))
        if keys.is_empty:
            break
    if keys is None or keys.is_empty:
        findings = None
    return ComparedReplica(replica_counts(qualified(namespace, name), lsn, max(rows, 0) + beside, findings), findings)


def replica_table(table: JobTable) -> JobTable:
    """Returns the replica of a table as a table to read: under its own name, without a row filter."""
    assert table.replica is not None
    namespace, name = table.replica
    return table.model_copy(update={"namespace": namespace, "name": name, "row_filter": None, "rereads": False})


def recorded(conn: psycopg.Connection[Any], stream: str, table: JobTable, replica: PostgresSettings) -> tuple[LSN, str]:
    """Returns the LSN at which the replica equals the source, or why this table cannot be compared."""
    with reading("looking for the replica's LSN"):
        if conn.execute("SELECT pg_catalog.to_regclass('cdc.cut')").fetchone() == (None,):
            return LSN(0), f"database {replica.database} holds no replica yet; start the sink (cdc sink)"
        cut = conn.execute("SELECT lsn::text FROM cdc.cut WHERE name = %s", (stream,)).fetchone()
        state = conn.execute(
            "SELECT state, coalesce(reason, '') FROM cdc.mirrored_table WHERE name = %s AND topic = %s",
            (stream, table.topic),
        ).fetchone()
    if cut is None or state is None:
        return LSN(0), "the sink has not mirrored this table yet"
    if state[0] != "exact":
        return LSN(0), f"the replica's table is {state[0]}" + (f": {state[1]}" if state[1] else "")
    if cut[0] is None:
        return LSN(0), "the sink is catching up, so the replica does not know yet at which LSN it equals the source"
    return LSN.parse(cut[0]), ""


def replica_counts(name: str, lsn: LSN, rows: int, findings: DataFrame | None) -> ReplicaCounts:
    """Computes the replica's counts for the report.

    Args:
        name: the name of the replica's table.
        lsn: the replica's cut.
        rows: how many rows the table has.
        findings: the findings of the second look; None if no key needed one.
    """
    found = {"with_row": 0} if findings is None else summary.counted(findings)
    return ReplicaCounts(
        table=name,
        lsn=str(lsn),
        rows=rows,
        identical=max(0, rows - found["with_row"]),
        **summary.not_identical(found, "replica"),
    )
