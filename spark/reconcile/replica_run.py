"""Compares a replica, at the LSN that it records, with the topic cut at the same LSN."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from cdc.base.lsn import LSN
from cdc.base.table_names import qualified
from cdc.contract.jobspec.deployment import JobTable, LakeSettings, MariadbSettings, PostgresSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.reconcile import summary
from cdc.spark.reconcile.chosen import chosen
from cdc.spark.reconcile.comparison import Comparison, Say, Sides, limited
from cdc.spark.reconcile.keys import Keys, keys_asked_for, keys_in
from cdc.spark.reconcile.second_look import read_findings
from cdc.spark.reconcile.selection import only_compared
from cdc.spark.reconcile.topic_records import RecordMoment
from cdc.spark.replicas.driver import DriverSide
from cdc.spark.replicas.lake import LakeSide
from cdc.spark.replicas.postgres import HeldPostgres, PostgresSide
from cdc.spark.replicas.side import ComparedPlace, HeldReplica, ReplicaSide
from cdc.spark.replicas.sqlite import SqliteDriver
from cdc.spark.report.model import ReplicaCounts
from cdc.spark.report.words import duration

_REMEDY: Final = "allow a longer snapshot: --max-snapshot-seconds"
_PAUSE_S: Final = 2.0
"""How long a replica in which nothing was committed is given for that before the next round: as long as a round takes
Spark, which would find the same again."""


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
        side: the replica.
    """

    def __init__(self, job: ReconcileJob, side: ReplicaSide) -> None:
        self._job = job
        self._side = side
        self._deadline: float | None = None

    def wait(self) -> None:
        """Returns at once if nothing was repaired.

        Raises:
            NotCaughtUp: the replica did not get there in time, for this table or an earlier one.
        """
        if self._job.replica_lsn:
            self._deadline = self._deadline or time.monotonic() + self._job.fence_timeout_s
            self._side.wait_for(LSN.parse(self._job.replica_lsn), self._deadline)


def compare_replica(
    job: ReconcileJob, table: JobTable, tools: Comparison, work: Path, say: Say, *, by_position: bool
) -> ComparedReplica:
    """Compares the replica with the topic. Keys that differ are compared again until they agree or no round is left.

    The second round matters: a record written into the topic after the last cut is not in the replica yet.
    ``by_position`` is explained at ``RecordMoment``.
    """
    side = tools.replica
    assert side is not None
    assert table.replica is not None
    kind: Literal["replica", "lake"] = "lake" if isinstance(job.replica, LakeSettings) else "replica"
    replica = replica_table(table)
    folder, compared = work / f"{table.topic}-replica", only_compared(job, table)
    keys, rows, beside = keys_asked_for(tools.spark, job, table), -1, 0
    findings: DataFrame | None = None
    place: ComparedPlace | None = None
    state = ""
    if why_not := side.why_not(table):
        return ComparedReplica(None, None, f"{kind}: {why_not}")
    for number in range(job.rounds + 1):
        if number and state and _stays(side, table.replica, state, Path(folder, f"wait-{number}")):
            continue
        say(f"{table.qualified_name}: comparing the {kind} {qualified(*table.replica)}" + (", again" if number else ""))
        at = f"{folder}/round-{number}"
        with ExitStack() as stack:
            held = stack.enter_context(side.hold([table.replica], Path(at, "rows")))
            stack.enter_context(limited(tools.spark, job.max_snapshot_s, _REMEDY))
            lsn, why_not = held.recorded(table)
            if why_not := why_not or why_too_old(tools, table, held):
                return ComparedReplica(None, None, f"{kind}: {why_not}")
            before, place = place, held.place(table)
            if place.version is not None and place == before:
                break  # the lake has not gone on, so it would be found as it was
            state, extent = held.state, tools.brokers.extent(table.topic)
            moment = RecordMoment(lsn=lsn, by_position=by_position)
            sides = Sides(held.rows(replica, job.where), replica, moment, compared, kind)
            if number == 0 and keys is None:
                lines = tools.hashes(extent, sides.origin)
                looked, keys = tools.first_look(sides, lines, (0, 1), f"{at}/candidates")
                rows = looked.source_rows
            keys = keys or Keys()
            judged = None if keys.is_empty else tools.second_look(sides, extent, keys, at)
            tools.brokers.refuse_another(extent)
            if why_not := why_too_old(tools, table, held):
                return ComparedReplica(None, None, f"{kind}: {why_not}")
            if judged is None:
                break
            findings, left_out = Keys(judged.keys).together(read_findings(tools.spark, f"{at}/findings")), 0
            if job.where is not None and isinstance(held, HeldPostgres):
                findings, beside, left_out = chosen(findings, job.where, replica, held.connection, all_rows=rows < 0)
            rows = rows if rows >= 0 else judged.with_row - left_out - beside
        keys = keys_in(findings.where("difference <> 'identical'"))
        if keys.is_empty:
            break
    if keys is None or keys.is_empty:
        findings = None
    assert place is not None
    return ComparedReplica(replica_counts(place, lsn, max(rows, 0) + beside, findings), findings)


def _stays(side: ReplicaSide, table: tuple[str, str], state: str, folder: Path) -> bool:
    """Returns whether nothing is committed in the replica for a while."""
    time.sleep(_PAUSE_S)
    with side.hold([table], folder) as held:
        return held.state == state


def why_too_old(tools: Comparison, table: JobTable, held: HeldReplica) -> str:
    """Returns why no key can be judged: a row deleted since the replica's moment may have lost its tombstone, too."""
    kept_s = int(tools.brokers.settings(table.topic)["delete.retention.ms"]) / 1000
    passed_s = time.monotonic() - held.taken_at
    if passed_s < kept_s:
        return ""
    return (
        f"what is compared is {duration(passed_s)} old, but tombstones are kept for only {duration(kept_s)}"
        " (delete.retention.ms), so a delete may have gone unseen; compare again when it is newer"
    )


def replica_side(spark: SparkSession, job: ReconcileJob) -> ReplicaSide | None:
    """Returns the replica that the job compares; None if it compares none."""
    if job.replica is None:
        return None
    if isinstance(job.replica, LakeSettings):
        return LakeSide(spark, job, job.replica)
    if isinstance(job.replica, PostgresSettings):
        return PostgresSide(spark, job, job.replica)
    if isinstance(job.replica, MariadbSettings):
        # Imported here, because its library comes with an extra
        from cdc.spark.replicas.mariadb import MariadbDriver

        return DriverSide(spark, job, MariadbDriver(job.replica))
    path = Path(job.replica.path)
    if job.replica.system == "sqlite":
        return DriverSide(spark, job, SqliteDriver(path))
    # Likewise
    from cdc.spark.replicas.duckdb import DuckdbDriver

    return DriverSide(spark, job, DuckdbDriver(path))


def replica_table(table: JobTable) -> JobTable:
    """Returns the replica of a table as a table to read: under its own name, and all of it as it is."""
    assert table.replica is not None
    namespace, name = table.replica
    columns = tuple(column.model_copy(update={"mask": ""}) for column in table.columns)
    own = {"namespace": namespace, "name": name, "columns": columns, "row_filter": None}
    return table.model_copy(update={**own, "rereads": False, "salt": None})


def replica_counts(place: ComparedPlace, lsn: LSN, rows: int, findings: DataFrame | None) -> ReplicaCounts:
    """Computes the replica's counts for the report.

    Args:
        place: where the replica's table is.
        lsn: the replica's cut.
        rows: how many rows the table has.
        findings: the findings of the second look; None if no key needed one.
    """
    found = {"with_row": 0} if findings is None else summary.counted(findings)
    return ReplicaCounts(
        kind=place.kind,
        table=place.table,
        version=place.version,
        lsn=str(lsn),
        rows=rows,
        identical=max(0, rows - found["with_row"]),
        **summary.not_identical(found, "replica"),
    )
