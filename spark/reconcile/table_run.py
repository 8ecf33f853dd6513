"""Compares one table with its topic: pass by pass, then round by round for the keys in flight."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from cdc.contract.jobspec.certificate import CertifiedFold
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.certify.digests import certified_fold
from cdc.spark.offsets import Extent
from cdc.spark.reconcile import summary
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.reconcile.candidates import FirstLook
from cdc.spark.reconcile.comparison import Comparison, Judged, Say, Sides, limited
from cdc.spark.reconcile.failures import Unverifiable
from cdc.spark.reconcile.kept_hashes import KeptHashes
from cdc.spark.reconcile.keys import Keys, keys_asked_for, keys_in
from cdc.spark.reconcile.ledger import PassDone, PassLedger, ranges
from cdc.spark.reconcile.second_look import read_findings
from cdc.spark.reconcile.selection import only_compared
from cdc.spark.reconcile.topic_records import RecordMoment
from cdc.spark.reconcile.verdict import TableEvidence, why_unverifiable
from cdc.spark.report.model import Counts, OffsetRange, Round
from cdc.spark.source.held_snapshot import HeldSnapshot, connect, hold, position_now, reading
from cdc.spark.source.rows import SourceRows
from cdc.spark.source.sql import quoted

_NOTHING: Final = Judged(0, 0, 0)
_SIZE: Final = """
WITH RECURSIVE tree AS (
  SELECT pg_catalog.to_regclass(%s)::oid AS oid
  UNION
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE c.relispartition
)
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0) FROM tree JOIN pg_catalog.pg_class c USING (oid) WHERE c.relkind = 'r'
"""
"""Estimates the rows from the catalog alone: PostgreSQL's size and partition functions wait for exclusive locks."""
_ROWS_A_SECOND: Final = 50_000
"""How many rows two cores compare without --state (docs/benchmarks.md). Machines differ, so the run only warns."""
_SLOWER: Final = "divide the keys over more snapshots (--passes 4), or allow a longer one (--max-snapshot-seconds)"


class Compared(NamedTuple):
    """The result of comparing a table with its topic.

    Attributes:
        findings: what the last round found for each key that needed a second look; None if none did.
        mode: ``incremental`` if the hashes of an earlier run could be used.
        fold: what a certificate says about the topic; None if none was asked for.
    """

    counts: Counts
    rounds: tuple[Round, ...]
    findings: DataFrame | None
    fence_wait_s: float
    offsets: tuple[OffsetRange, ...]
    mode: Literal["full", "incremental"]
    fold: CertifiedFold | None = None


class TableRun:
    """Compares one table of the source with its topic.

    Args:
        job: the run.
        table: the table.
        tools: the tools that all tables share.
        bridge: the bridge's progress.
        server: system identifier and timeline of the source.
        work: the run's folder for files that it needs until it ends.
        say: receives progress messages.
    """

    def __init__(
        self,
        job: ReconcileJob,
        table: JobTable,
        tools: Comparison,
        bridge: BridgeProgress,
        server: str,
        work: Path,
        say: Say,
    ) -> None:
        self._job = job
        self._table = table
        self._tools = tools
        self._bridge = bridge
        self._say = say
        self._compared = only_compared(job, table)
        self._folder = work / table.topic
        self._ledger = PassLedger(self._folder)
        self._fence_wait_s = 0.0
        self._kept: KeptHashes | None = None
        if job.state is not None and not self._is_restricted:
            place = Path(job.state) / table.topic
            self._kept = KeptHashes(place, server, tools.spark, tools.kafka)

    def compare(self) -> Compared:
        """Runs all passes, then the rounds that the keys in flight need.

        Raises:
            Unverifiable: the table as a whole cannot be judged.
            JobError: a server failed, or took too long.
        """
        if why := too_long(self._rows(), self._passes, self._job.max_snapshot_s):
            self._say(f"{self._table.qualified_name}: {why}")
        done = [self._ledger.done(number) or self._pass(number) for number in range(self._passes)]
        rounds = [each.round for each in done]
        findings = self._read([each.folder for each in done])
        in_flight = sum(each.round.in_flight for each in done)
        for number in range(1, self._job.rounds + 1):
            if not in_flight or findings is None:
                break
            self._say(f"{self._table.qualified_name}: {in_flight:,} keys are in flight, looking again")
            later = self._round(number, keys_in(findings.where(fn.col("difference") == "in_flight")))
            rounds.append(later.round)
            settled = findings.where(fn.col("difference") != "in_flight")
            again = self._read([later.folder])
            findings = settled if again is None else settled.unionByName(again)
            in_flight = later.round.in_flight
        if findings is not None:
            # Keys(None) stands for all keys. Zero means the same here: there are findings, so keys were looked at.
            looked_at = sum(each.round.keys for each in done)
            findings = Keys(looked_at or None).together(findings)
        return Compared(
            counts=self._counts(done, findings),
            rounds=tuple(rounds),
            findings=findings,
            fence_wait_s=self._fence_wait_s,
            offsets=tuple(each for last in done[-1:] for each in last.offsets),
            mode="incremental" if self._kept is not None and self._kept.went_on else "full",
            fold=done[0].fold,
        )

    @property
    def _passes(self) -> int:
        return 1 if self._is_restricted else self._job.passes

    @property
    def _is_restricted(self) -> bool:
        """True if the job names the keys to compare; then there is no first look by hashes."""
        return self._table.qualified_name in self._job.keys

    def _rows(self) -> int:
        """Returns PostgreSQL's own estimate of the table's rows."""
        if self._is_restricted:
            return 0
        table = self._table.namespace, self._table.name
        with contextlib.closing(connect(self._job.source)) as conn, reading("asking for the table's size"):
            row = conn.execute(_SIZE, (quoted(*table),)).fetchone()
        return int(row[0]) if row is not None else 0

    def _pass(self, number: int) -> PassDone:
        what = f", part {number + 1} of {self._passes}" if self._passes > 1 else ""
        self._say(f"{self._table.qualified_name}: comparing{what}")
        folder = str(self._folder / f"pass-{number}")
        with ExitStack() as stack:
            held, extent, sides = self._open(stack)
            extent_read = extent
            if self._is_restricted:
                looked = None
                keys = keys_asked_for(self._tools.spark, self._job, self._table) or Keys()
            else:
                bucket = (number, self._passes)
                # Hashes cover whole rows even if only some columns are compared: equal rows are equal in those, too.
                lines, extent_read = self._hashes(sides, held, extent)
                looked, keys = self._tools.first_look(sides, lines, bucket, f"{folder}/candidates")
            judged = _NOTHING
            if not keys.is_empty:
                judged = self._tools.second_look(sides, extent, keys, folder, self._kept)
            self._check_end(held, extent)
            if self._kept is not None:
                self._kept.keep()
        done = PassDone(
            number=number,
            folder=folder,
            source_rows=looked.source_rows if looked else judged.with_row,
            live_keys=looked.live_keys if looked else 0,
            tombstones=looked.tombstones if looked else 0,
            round=Round(
                number=0, snapshot=held.text, lsn=str(held.lsn), keys=keys.count or 0, in_flight=judged.in_flight
            ),
            offsets=ranges(extent_read),
            fold=self._certified(held, sides, extent, looked),
        )
        self._ledger.keep(done)
        return done

    def _certified(
        self, held: HeldSnapshot, sides: Sides, extent: Extent, looked: FirstLook | None
    ) -> CertifiedFold | None:
        if self._job.certificate is None or looked is None:
            return None
        assert sides.origin is not None
        return certified_fold(held, extent, sides.origin.definitions.get(extent.topic, {}), looked.buckets)

    def _hashes(self, sides: Sides, held: HeldSnapshot, extent: Extent) -> tuple[DataFrame, Extent]:
        """Returns the hashes of the whole topic, and the part of the topic that was read for them."""
        assert sides.origin is not None
        if self._kept is None:
            return self._tools.hashes(extent, sides.origin, digested=self._job.certificate is not None), extent
        with self._tools.watch.timing("kept hashes"):
            return self._kept.brought_up_to(
                extent,
                held.snapshot,
                sides.origin.is_foreign(extent.topic),
                sides.origin.definitions.get(extent.topic, {}).values(),
            )

    def _round(self, number: int, keys: Keys) -> PassDone:
        folder = str(self._folder / f"round-{number}")
        with ExitStack() as stack:
            held, extent, sides = self._open(stack)
            judged = self._tools.second_look(sides, extent, keys, folder, self._kept)
            self._check_end(held, extent)
        looked = Round(
            number=number,
            snapshot=held.text,
            lsn=str(held.lsn),
            keys=keys.count or 0,
            in_flight=judged.in_flight,
        )
        return PassDone(
            number=number, folder=folder, source_rows=0, live_keys=0, tombstones=0, round=looked, offsets=()
        )

    def _open(self, stack: ExitStack) -> tuple[HeldSnapshot, Extent, Sides]:
        """Prepares a comparison. The order matters (``verdict``, ``origin``).

        First the bridge is asked for its state, then come the snapshot, the fence, the pinned ends, and last what the
        bridge can have written.
        """
        self._bridge.catch_up()
        is_whole, unseen = self._bridge.is_whole(self._table.qualified_name), self._bridge.unseen
        held = stack.enter_context(
            hold(self._job.source, (self._table.namespace, self._table.name), self._job.fence_timeout_s)
        )
        stack.enter_context(limited(self._tools.spark, self._job.max_snapshot_s, _SLOWER))
        # How long the reading takes is judged at its end (_check_end).
        if why := why_unverifiable(TableEvidence(is_whole, unseen, held.snapshot)):
            raise Unverifiable(why)
        with self._tools.watch.timing("fence"):
            self._fence_wait_s = pass_fence(self._job, self._bridge, held, rereads=self._table.rereads)
            extent = self._tools.brokers.extent(self._table.topic)
        sides = Sides(
            SourceRows(self._tools.spark, self._job.source, held, self._table, self._job.where, self._job.connections),
            self._table,
            RecordMoment(snapshot=held.snapshot),
            self._compared,
            "topic",
            self._tools.origins.now(),
        )
        return held, extent, sides

    def _check_end(self, held: HeldSnapshot, extent: Extent) -> None:
        """Checks that the topic is still the same, and that no tombstone can have come and gone since the snapshot."""
        self._tools.brokers.refuse_another(extent)
        retention_ms = int(self._tools.brokers.settings(self._table.topic)["delete.retention.ms"])
        taken_ms = int((time.monotonic() - held.taken_at) * 1000)
        # Whether the topic is whole, and what the snapshot does not see, was judged at the start (_open).
        if why := why_unverifiable(TableEvidence(True, (), held.snapshot, taken_ms, retention_ms)):
            raise Unverifiable(why)

    def _read(self, folders: Sequence[str]) -> DataFrame | None:
        places = [f"{each}/findings" for each in folders if Path(each, "findings").exists()]
        frames = [read_findings(self._tools.spark, each) for each in places]
        return functools.reduce(DataFrame.unionByName, frames) if frames else None

    def _counts(self, done: Sequence[PassDone], findings: DataFrame | None) -> Counts:
        found = {"with_row": 0} if findings is None else summary.counted(findings)
        source_rows = sum(each.source_rows for each in done)
        return Counts(
            source_rows=source_rows,
            records=sum(each.records for last in done[-1:] for each in last.offsets),
            live_keys=sum(each.live_keys for each in done),
            tombstones=sum(each.tombstones for each in done),
            identical=max(0, source_rows - found["with_row"]),
            **summary.not_identical(found, "topic"),
        )


def too_long(rows: int, passes: int, limit_s: float) -> str:
    """Returns a warning if the snapshot is likely to be held for longer than is allowed; otherwise an empty text.

    Args:
        rows: about how many rows the table has.
        passes: over how many snapshots they are divided.
        limit_s: ``--max-snapshot-seconds``.
    """
    seconds = rows / _ROWS_A_SECOND
    if seconds / passes <= limit_s:
        return ""
    # The options it names leave a quarter of the time to spare.
    return (
        f"about {rows:,} rows may take {seconds / passes / 60:,.0f} minutes per snapshot, at {_ROWS_A_SECOND:,} rows a"
        f" second, but a snapshot may be held for only {limit_s / 60:,.0f}; unless this machine is faster, stop the run"
        f" and give --passes {math.ceil(1.25 * seconds / limit_s)}, or --max-snapshot-seconds"
        f" {math.ceil(1.25 * seconds / passes)}"
    )


def pass_fence(job: ReconcileJob, bridge: BridgeProgress, held: HeldSnapshot, *, rereads: bool) -> float:
    """Waits until the topics hold everything that the snapshot sees.

    Args:
        job: the run.
        bridge: the bridge's progress.
        held: the snapshot.
        rereads: the bridge completes rows of the table by reading them again.

    Returns:
        How long the wait took, in seconds.

    Raises:
        NotCaughtUp: the bridge took longer than the run allows.
    """
    # Called for its side effect: it flushes the WAL, or the bridge of an idle server might never get to held.lsn.
    position_now(job.source)
    waited_s = bridge.wait_for(held.lsn, job.fence_timeout_s)
    if rereads:
        # If a row was gone when the bridge re-read it, the topic must hold the delete as well: see ``verdict``.
        bridge.wait_for(position_now(job.source), job.fence_timeout_s)
    return waited_s
