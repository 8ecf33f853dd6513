"""Compares small tables together: one snapshot, one fence and one first look for up to a hundred of them.

A look costs Spark seconds of planning, however few the rows are, and each snapshot waits for the bridge. So small
tables are looked at together first, by the rule of every first look. A table that is found equal is done. If there is
any doubt about a table (a hash differs, somebody locks it, there was any error), it is compared by itself afterwards,
at a snapshot of its own, like a large one. This module never reports a difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.certify.digests import certified_fold
from cdc.spark.errors import JobError
from cdc.spark.offsets import Extent
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.reconcile.candidates import FirstLook
from cdc.spark.reconcile.comparison import CLOCK_MARGIN_MS, Comparison, Say, limited
from cdc.spark.reconcile.failures import as_job_errors
from cdc.spark.reconcile.ledger import PassDone, PassLedger, ranges
from cdc.spark.reconcile.origin import PossibleRecords
from cdc.spark.reconcile.replica_run import replica_counts, replica_table
from cdc.spark.reconcile.table_run import pass_fence
from cdc.spark.reconcile.topic_records import RecordMoment
from cdc.spark.reconcile.verdict import TableEvidence, kept_since_ms, why_too_slow, why_unverifiable
from cdc.spark.report.model import ReplicaCounts, Round
from cdc.spark.source.held_snapshot import HeldSnapshot, hold_free
from cdc.spark.source.rows import hashes_of_many, sizes_of

_MOST_TABLES: Final = 100
"""How many tables go together: one query names them all, and one transaction locks them all."""

SMALL_BYTES: Final = 128 * 2**20
MOST_BYTES: Final = 8 * SMALL_BYTES
"""How large the tables may be together. Two cores compare this much in a minute or two, while the snapshot is held."""

_NOTHING: Final = FirstLook(0, 0, 0, 0, None)
_SLOWER: Final = "each is compared by itself"

_Names: TypeAlias = Mapping[tuple[str, str], JobTable]
"""Tables by their schema and name in the database that is read."""


class Together:
    """Compares the small tables of a run.

    Args:
        job: the run.
        tools: the tools of this comparison.
        bridge: the bridge's progress.
        work: the run's folder for files that it needs until it ends.
        say: receives progress messages.
    """

    def __init__(self, job: ReconcileJob, tools: Comparison, bridge: BridgeProgress, work: Path, say: Say) -> None:
        self._job = job
        self._tools = tools
        self._bridge = bridge
        self._work = work
        self._say = say

    def compare(self) -> dict[str, ReplicaCounts]:
        """Compares all small tables, and enters those that equal their topics in the ledger.

        Returns:
            The replica tables that equal their topics, by the name of the source table.
        """
        job, equal = self._job, dict[str, ReplicaCounts]()
        if job.passes > 1 or job.state is not None or job.where is not None or job.keys:
            return equal
        tables = [each for each in job.tables if each.qualified_name not in job.columns]
        self._in_turn(job.source.address, {(each.namespace, each.name): each for each in tables}, self._with_topics)
        if job.replica is not None:
            replicas = {each.replica: each for each in tables if each.replica is not None}
            self._in_turn(job.replica.address, replicas, lambda batch: self._replicas(batch, equal))
        return equal

    def _in_turn(self, database: str, tables: _Names, look: Callable[[_Names], int]) -> None:
        names = list(tables)
        for start in range(0, len(names), _MOST_TABLES):
            batch = {each: tables[each] for each in names[start : start + _MOST_TABLES]}
            if len(batch) == 1:  # a single table gains nothing
                return
            self._say(f"{len(batch)} tables of {database}: comparing the small ones together")
            try:
                with as_job_errors():
                    equal = look(batch)
                self._say(f"{equal} of {len(batch)} are identical")
            except JobError as error:
                self._say(f"{error.message}: {_SLOWER}")

    def _with_topics(self, batch: _Names) -> int:
        job, brokers = self._job, self._tools.brokers
        # A resumed run has some of them in its ledger already.
        begun = {name: table for name, table in batch.items() if PassLedger(self._work / table.topic).done(0) is None}
        self._bridge.catch_up()
        whole = {name: table for name, table in begun.items() if self._bridge.is_whole(table.qualified_name)}
        unseen = self._bridge.unseen
        with ExitStack() as stack:
            held = stack.enter_context(hold_free(job.source, list(whole)))
            stack.enter_context(limited(self._tools.spark, job.max_snapshot_s, _SLOWER))
            tables = [whole[each] for each in small_ones(sizes_of(held))]
            if not tables or why_unverifiable(TableEvidence(True, unseen, held.snapshot)):
                return 0
            pass_fence(job, self._bridge, held, rereads=any(each.rereads for each in tables))
            extents = {each.topic: brokers.extent(each.topic) for each in tables}
            origin = self._tools.origins.now()
            looks = self._tools.first_looks(
                hashes_of_many(self._tools.spark, job.source, held, tables, job.connections),
                list(extents.values()),
                RecordMoment(snapshot=held.snapshot),
                origin,
                None if job.certificate is None else str(self._work / "together"),
            )
            equal = self._equal(held.taken_at, extents, looks)
        for table in tables:
            if table.topic in equal:
                self._keep(table, held, extents[table.topic], equal[table.topic], origin)
        return len(equal)

    def _replicas(self, batch: _Names, found: dict[str, ReplicaCounts]) -> int:
        job, brokers = self._job, self._tools.brokers
        assert self._tools.replica is not None
        with ExitStack() as stack:
            held = stack.enter_context(self._tools.replica.hold(list(batch), self._work / "replicas"))
            stack.enter_context(limited(self._tools.spark, job.max_snapshot_s, _SLOWER))
            told = {each: held.recorded(batch[each]) for each in held.tables}
            small = small_ones(held.sizes([each for each, (_, why_not) in told.items() if not why_not]))
            exact = {each: told[each][0] for each in small}
            if not exact:
                return 0
            lsn: LSN = next(iter(exact.values()))  # all were read from the same row, under the same snapshot
            tables = [replica_table(batch[each]) for each in exact]
            extents = {each.topic: brokers.extent(each.topic) for each in tables}
            moment = RecordMoment(lsn=lsn, by_position=self._bridge.may_be_late)
            places = {each.topic: held.place(each) for each in tables}
            looks = self._tools.first_looks(held.hashes_of_many(tables), list(extents.values()), moment, None)
            equal = self._equal(held.taken_at, extents, looks)
        for name in exact:
            table = batch[name]
            if table.topic in equal:
                rows = equal[table.topic].source_rows
                found[table.qualified_name] = replica_counts(places[table.topic], lsn, rows, None)
        return len(equal)

    def _equal(
        self, taken_at: float, extents: Mapping[str, Extent], looks: Mapping[str, FirstLook]
    ) -> dict[str, FirstLook]:
        """Returns the looks at tables that certainly equal their topics, by topic."""
        brokers, now_ms = self._tools.brokers, int(time.time() * 1000)
        brokers.refuse_another(*extents.values())
        taken_ms = int((time.monotonic() - taken_at) * 1000)
        equal = {}
        for topic, settings in brokers.settings_of(list(extents)).items():
            look = looks.get(topic, _NOTHING)
            kept_since = kept_since_ms(now_ms, int(settings["min.compaction.lag.ms"]), CLOCK_MARGIN_MS)
            if look.is_equal(kept_since) and not why_too_slow(taken_ms, int(settings["delete.retention.ms"])):
                equal[topic] = look
        return equal

    def _keep(
        self, table: JobTable, held: HeldSnapshot, extent: Extent, look: FirstLook, origin: PossibleRecords
    ) -> None:
        folder, definitions = self._work / table.topic, origin.definitions.get(table.topic, {})
        certifies = self._job.certificate is not None
        done = PassDone(
            number=0,
            folder=str(folder / "pass-0"),
            source_rows=look.source_rows,
            live_keys=look.live_keys,
            tombstones=look.tombstones,
            round=Round(number=0, snapshot=held.text, lsn=str(held.lsn), keys=0, in_flight=0),
            offsets=ranges(extent),
            fold=certified_fold(held, extent, definitions, look.buckets) if certifies else None,
        )
        PassLedger(folder).keep(done)


def small_ones(sizes: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Chooses the tables to compare together: small ones, and not so many that the snapshot is held for long.

    Args:
        sizes: bytes, by schema and name.
    """
    small: list[tuple[str, str]] = []
    total = 0
    for name, size in sizes.items():
        if size < SMALL_BYTES and total + size <= MOST_BYTES:
            small.append(name)
            total += size
    return small
