"""Finds where a session goes on: at the stored progress if nothing is missing; else it names a gap, or closes it.

The order in which a gap is closed matters. First the slot is made anew. Then one Kafka transaction, the session's
first, holds the demanded backfills, the known topics and the new progress. Killed before it, the next start finds the
same gap again, because the slot is ahead of the old progress. Killed after it, the demands are on record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import structlog

from cdc.base.config import Config
from cdc.base.errors import CdcError, GapError, SourceUnavailable, TakenOver, TopicRefused
from cdc.base.lsn import LSN, ZERO
from cdc.bridge.capture.copy_both import System
from cdc.bridge.capture.timeline import left_at
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.repeats import Repeats
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.giving_up import unless_stopped
from cdc.bridge.source.membership import publication_oid
from cdc.bridge.source.slot import create_slot, drop_slot, identify, inspect_slot, wal_end
from cdc.bridge.source.slot_lock import lock_holder
from cdc.contract.gaps import (
    SlotGap,
    TableGap,
    TopicGap,
    foreign_source,
    forgotten_progress,
    lost_before_the_first_progress,
    publication_gaps,
    published_until,
    slot_before_publication,
    slot_gap,
    stream_gap,
    topic_gaps,
)
from cdc.contract.known_topic import KnownTopic
from cdc.contract.membership import Membership, membership_key, membership_value
from cdc.contract.naming import progress_topic, schemas_topic
from cdc.contract.progress import stream_key
from cdc.contract.record import Progress
from cdc.contract.slot_state import SlotState
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.topic_state import (
    Known,
    foreign_topics,
    last_records,
    look_at,
    newest_lsn,
    read_known,
    refuse_hidden_ends,
)

GRACE_S = 3.0
"""How long a bridge that finds an open ``lead`` waits before it looks at the topics. The former bridge stops sending
when it had no proof for two seconds that it is the active one, and takes back what is on its way after two and a half.
"""
_OPTIONS_TELL_SINCE = 150000
"""The first version on which written options are suspicious: PostgreSQL 14 users must write the publication's options
whenever they attach or detach a partition."""

log = structlog.get_logger("cdc.bridge")


class Resumption:
    """Compares slot, server and topics with what is on record.

    Args:
        config: the whole configuration.
        admin: asks the brokers, and has the settings for readers.
        sql: a connection to the source.
    """

    def __init__(self, config: Config, admin: BrokerAdmin, sql: psycopg.Connection[Any]) -> None:
        self._config = config
        self._sql = sql
        self._slot = config.source.slot
        self._admin = admin
        self._progress_topic = progress_topic(config.name)
        self._progress_key = stream_key(self._slot)
        self._source = identify(sql)
        self._known: Mapping[str, KnownTopic] = {}
        self._own = {self._progress_topic, schemas_topic(config.name)}
        self.before: Mapping[str, int] | None = None
        """The tables that were captured as of ``refuse``, with their oids; None when nothing was ever published."""
        self.recorded: dict[str, KnownTopic] = {}
        """The topics as they were on record at ``resume``."""
        self.seen: dict[str, KnownTopic] = {}
        """The topics as ``resume`` saw them, to be recorded in the first Kafka transaction."""
        self._recorded_members: dict[str, Membership] = {}
        self.repeats: Repeats | None = None
        """What the topics hold beyond the progress that ``resume`` returned; None when there can be nothing."""
        self.members: Mapping[str, Membership] = {}
        """What carries each table in the publication, as passed to ``resume``."""

    def refuse(self) -> None:
        """Refuse to start on a foreign source or changed partitions, before anything is touched. Sets ``before``.

        Raises:
            GapError: the topics were published from another database, or a topic's partitions have changed.
        """
        stored, known, members = self._read(fenced=False)
        self.before = None if stored is None else {table: each.table for table, each in members.items()}
        self._compare_source(stored)
        self._known = known
        for gap in topic_gaps(known, self._look(known), dict.fromkeys(known, ())):
            if not isinstance(gap, TopicGap):  # these are for ``resume``, which may close them
                raise gap

    def refuse_foreign(self, topics: Collection[str]) -> None:
        """Refuse topics with foreign records. Call it after ``refuse`` and before a topic is created.

        Each topic is looked at once.

        Raises:
            TopicRefused: no bridge of this name has written to a topic yet, but it holds records that no bridge wrote.
        """
        new = set(topics) - self._known.keys() - self._own
        self._own |= new
        for topic in foreign_topics(self._admin, self._look(new)):
            raise TopicRefused(
                f"topic {topic!r} holds records that no bridge wrote; whoever reads it would take them for rows",
                remedy="give the table another topic under topics.names; or, if nobody needs these records, delete the "
                f"topic: kafka-topics.sh --bootstrap-server … --delete --topic {topic}",
            )

    def is_first_start(self, topics: Collection[str]) -> bool:
        """Whether nothing was ever published: there is no progress, and no record in any of these topics."""
        stored = self._read(fenced=False).progress
        return stored is None and newest_lsn(self._admin, self._look(topics)) is None

    def resume(
        self,
        tables: Mapping[str, Sequence[str]],
        members: Mapping[str, Membership],
        stop: threading.Event,
        renewed: Collection[str] = (),
    ) -> tuple[Progress, list[Demand]]:
        """Find where to go on. Call it as the only active bridge: the others are fenced, and the slot is free.

        Args:
            tables: this bridge's topics, and the tables whose rows each holds.
            members: what carries each table in the publication.
            stop: ends the waits for the former bridge, which may still send rows, and for open transactions.
            renewed: tables that begin anew in any case, because the configuration has another condition for them.

        Returns:
            The progress to go on from, and what must be published again. Commit the two together with what was seen
            of topics and publication, before all else.

        Raises:
            GapError: changes may be missing, and a person has to decide how to close the gap.
            SourceUnavailable: the slot is just being made, or a gap cannot be closed yet; try again.
            TopicUnavailable: an open Kafka transaction hides the end of a topic, or no broker answers.
        """
        refuse_hidden_ends(self._admin, [self._progress_topic, *tables])
        stored, known, recorded = self._read(fenced=True)
        self._compare_source(stored)
        if is_ahead := stored is not None and stored.lead is not None and stored.lead.is_open:
            stop.wait(GRACE_S)
        slot = inspect_slot(self._sql, self._slot)
        now = self._look(tables)
        # Without a progress, a record in the topics says that there was one, and that this is not the first start
        newest = newest_lsn(self._admin, now) if stored is None else None
        if is_ahead:
            partitions = {name: len(topic.ends) for name, topic in now.items()}
            self.repeats = Repeats(last_records(self._admin, now), partitions)
            newest = self.repeats.greatest
        gaps = [
            *self._stream_gaps(stored, newest, slot),
            *topic_gaps(known, now, tables),
            *self._publication_gaps({name: was for name, was in recorded.items() if name not in renewed}, members),
        ]
        if gaps and not (self._config.heals_gaps and all(isinstance(gap, SlotGap | TableGap) for gap in gaps)):
            raise _merged(gaps)
        demands = [*_demands(gaps, tables, self._config.source.outbox), *_made_anew(recorded, members)]
        if any(isinstance(gap, SlotGap) for gap in gaps):
            until = newest if stored is None else max(published_until(stored), newest or ZERO)
            progress = self._make_slot_anew(stored, until, stop)
        else:
            progress = self._go_on(stored, slot)
        self.recorded, self.seen = known, now
        self._recorded_members, self.members = recorded, members
        return progress, demands

    def record_members(self, produce: Callable[[str, bytes, bytes | None, bytes], None]) -> None:
        """Record what carries each table, in the open Kafka transaction: the one that also holds the demands."""
        for table in self._recorded_members.keys() | self.members.keys():
            now = self.members.get(table)
            if now != self._recorded_members.get(table):
                value = None if now is None else membership_value(now)
                produce(self._progress_topic, membership_key(table), value, b"")

    def expect(self, system: System) -> None:
        """Refuse a walsender that runs on another server than the catalog was read from.

        This happens when the DSN names several hosts and one of them was just promoted.

        Raises:
            SourceUnavailable: the two servers differ; a new attempt looks at both again.
        """
        was, timeline = self._source.system_identifier, self._source.timeline
        if system.system_identifier != was or (wal_end(self._sql) is not None and system.timeline != timeline):
            raise SourceUnavailable(
                f"two connections reached two servers: system {was} on timeline {timeline}, and "
                f"system {system.system_identifier} on timeline {system.timeline}",
                remedy="wait while a standby is being promoted; else correct the hosts in source.dsn",
            )

    def explain(self, error: SourceUnavailable, own_pid: int) -> CdcError | None:
        """Returns the error that the end of the stream means, if trying again does not help; else None.

        Args:
            error: how the stream ended.
            own_pid: the server process that streamed to this bridge.

        Returns:
            ``TakenOver`` when another session has the slot: this bridge was silent for so long that a waiting one took
            over. ``GapError`` when the slot is gone or lost, unless the next attempt heals that.
        """
        try:
            application, source = f"cdc {self._config.name}", self._config.source
            with connect(source.connection(), application_name=application, lock_timeout_s=LOOK_S) as sql:
                slot, holder = inspect_slot(sql, self._slot), lock_holder(sql, self._slot)
                if self._begins_too_early(error, sql):
                    return slot_before_publication(self._slot, source.publication)
            stored = self._read(fenced=False).progress
        except CdcError:
            return None  # the server or the broker is unreachable, which says nothing about the slot
        others = {None if slot is None else slot.active_pid, None if holder is None else holder.pid} - {None, own_pid}
        if others:
            return TakenOver(
                f"server process {max(filter(None, others))} has slot {self._slot!r}; {error.message}",
                remedy="leave this bridge waiting: it takes over when the other one ends; or stop one of the two",
            )
        if stored is None or self._config.heals_gaps or (slot is not None and not slot.lost):
            return None
        gap = slot_gap(self._slot, stored, slot)
        return gap and GapError(f"{gap.message}; {error.message}", remedy=gap.remedy)

    def _begins_too_early(self, error: SourceUnavailable, sql: psycopg.Connection[Any]) -> bool:
        """Whether the WAL to be read is older than the publication, which is still the one that the session found."""
        name = self._config.source.publication
        if f'publication "{name}" does not exist' not in error.message:
            return False
        known = {each.publication for each in self.members.values()}
        return publication_oid(sql, name) in known

    def _read(self, *, fenced: bool) -> Known:
        return read_known(self._admin, self._progress_topic, self._progress_key, fenced=fenced)

    def _look(self, topics: Collection[str]) -> dict[str, KnownTopic]:
        return look_at(self._admin, topics)

    def _compare_source(self, stored: Progress | None) -> None:
        database = self._sql.info.dbname
        if stored is not None and (gap := foreign_source(self._config.name, stored, self._source, database)):
            raise gap

    def _stream_gaps(self, stored: Progress | None, newest: LSN | None, slot: SlotState | None) -> list[GapError]:
        if stored is None and newest is not None:
            return [forgotten_progress(self._progress_topic, newest)]
        if stored is None:
            return [lost_before_the_first_progress(slot)] if slot is not None and slot.lost else []
        gap = stream_gap(
            name=self._slot,
            stored=stored,
            slot=slot,
            source=self._source,
            wal_end=wal_end(self._sql),
            left_at=lambda: left_at(self._config.source.connection(), self._source.timeline, stored.source.timeline),
            newest=newest or ZERO,
        )
        return [gap] if gap else []

    def _publication_gaps(
        self, recorded: Mapping[str, Membership], members: Mapping[str, Membership]
    ) -> list[GapError]:
        name, is_old = self._config.source.publication, self._sql.info.server_version < _OPTIONS_TELL_SINCE
        gaps = publication_gaps(name, recorded, members, options_tell=not is_old)
        versions = {recorded[table].version != members[table].version for table in recorded.keys() & members.keys()}
        if not gaps and any(versions):
            log.warning(
                "the publication was altered (its options or its owner); if it left out changes for a while, "
                "nobody can tell now",
                publication=name,
                remedy="if it did: cdc backfill --sweep",
            )
        return gaps

    def _go_on(self, stored: Progress | None, slot: SlotState | None) -> Progress:
        if slot is None or slot.confirmed_flush_lsn is None:
            raise SourceUnavailable(
                f"slot {self._slot!r} is still being made",
                remedy="cdc tries again by itself; it waits for transactions that were open when the slot was made",
            )
        if stored is None:
            return Progress(slot.confirmed_flush_lsn, None, 0, self._source)
        return replace(stored, source=self._source)

    def _make_slot_anew(self, stored: Progress | None, until: LSN | None, stop: threading.Event) -> Progress:
        """Make the slot anew at the server's current position. That must be past what is published: LSNs never fall."""
        end = wal_end(self._sql)
        if end is not None and until is not None and end <= until:
            raise SourceUnavailable(
                f"the gap cannot be closed yet: the server's WAL ends at {end}, and {until} is published; "
                "positions in a topic must never fall",
                remedy="wait: the bridge goes on when the server has passed that; to hurry: SELECT pg_switch_wal();",
            )
        drop_slot(self._sql, self._slot)
        with unless_stopped(stop, self._sql, f"making slot {self._slot} anew"):
            start = create_slot(self._sql, self._slot)
        log.info("slot made anew", slot=self._slot, start=str(start))
        if messages := self._config.source.messages:
            log.error(
                "events of messages may be missing: nothing but the WAL has them, and a part of it is lost",
                prefixes=sorted(messages),
                remedy="have the services that emit them compare what they have done with the topics, and emit again "
                "what is missing",
            )
        if stored is None:
            return Progress(start, None, 0, self._source)
        return Progress(start, None, stored.commit_ts, self._source, lead=stored.lead)


def _made_anew(recorded: Mapping[str, Membership], members: Mapping[str, Membership]) -> list[Demand]:
    """Returns demands for tables that were dropped and made again.

    The stream lacks what was written to the new table before it joined the publication.
    """
    remade = [table for table in recorded.keys() & members.keys() if recorded[table].table != members[table].table]
    return [Demand(table, sweep=True, reason="another table has taken this name") for table in remade]


def _merged(gaps: Sequence[GapError]) -> GapError:
    """Returns one error for all gaps. The one that needs a person most comes first."""
    first, *others = sorted(gaps, key=lambda gap: isinstance(gap, TableGap) + 2 * isinstance(gap, SlotGap))
    if not others:
        return first
    return GapError("; ".join(gap.message for gap in (first, *others)), remedy=first.remedy)


def _demands(gaps: Sequence[GapError], tables: Mapping[str, Sequence[str]], outboxes: Collection[str]) -> list[Demand]:
    """Returns a backfill with sweep for every table, or outbox, that a gap touches. Logs each gap."""
    reasons: dict[str, str] = {}
    everywhere = [*(table for names in tables.values() for table in names), *outboxes]
    for gap in gaps:
        touched = gap.tables if isinstance(gap, TableGap) else everywhere
        log.warning(
            "closing a gap",
            gap=gap.message,
            tables=sorted(set(touched)),
            remedy="wait: the tables are published again by themselves; `cdc backfill --list` says how far",
        )
        for table in touched:
            reasons.setdefault(table, gap.message)
    return [Demand(table, sweep=True, reason=reason) for table, reason in reasons.items()]
