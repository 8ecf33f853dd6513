"""The topics that the sink reads: where each begins, whether it is still the same topic, and since when it is read.

Stored offsets are valid for one topic, and only while the sink has missed no record after them. So the sink rebuilds a
table from the beginning of its topic (``postgres/rebuild.py``) in these cases:

- the topic was recreated or lost records
- the sink did not read it for longer than Kafka keeps tombstones
- the operator asked for it

A recreated topic holds its whole table again when the bridge has noticed and published the table. The bridge records
which topic it knows in the Kafka transaction that requests the rows. Until a cut includes that record, the table loads.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import structlog

from cdc.base.errors import ConfigError
from cdc.contract.known_topic import KnownTopic
from cdc.contract.ports import BeginAnew, RecordReader, ReplicaWriter, Restored, StoredRecord, TopicFacts
from cdc.kafka.replay.backfills import StoredTopic
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.kafka.replay.home import sifter
from cdc.kafka.replay.horizon import longest_absence_s, why_anew

_LOOK_S: Final = 5.0

log = structlog.get_logger("cdc.sink")


def raise_set_back() -> NoReturn:
    """Ends the session because the clock was set back: what the session knows may be older than it looks.

    Raises:
        BeginAnew: always.
    """
    log.warning(
        "the clock of this machine was set back: reading on from what is stored",
        remedy="wait: the tables become exact again by themselves; let the clock be slewed (chronyd), not set",
    )
    raise BeginAnew


class RebuildOrder:
    """The tables that the operator wants rebuilt, each once, when the process starts.

    Args:
        tables: as ``namespace.table`` in the source.
        everything: rebuild every table.
    """

    def __init__(self, tables: Collection[str] = (), *, everything: bool = False) -> None:
        self._tables = set(tables)
        self._everything = everything

    def names(self, table: str) -> bool:
        """Returns whether this table is to be rebuilt."""
        return self._everything or table in self._tables

    def close(self, known: Collection[str], held: Collection[str] = ()) -> None:
        """Ends the order, since all known tables were begun. Tables that somebody's lock keeps out stay in it.

        Args:
            known: every table that the bridge publishes.
            held: tables that somebody's lock keeps out.

        Raises:
            ConfigError: the order names a table that the bridge does not publish.
        """
        if unknown := sorted(self._tables.difference(known)):
            raise ConfigError(
                f"--rebuild names {', '.join(unknown)}, which the bridge does not publish",
                remedy=f"choose from: {', '.join(sorted(known))}",
            )
        self._tables = {each for each in held if self.names(each)}
        self._everything = False


class MirroredTopics:
    """The state topics of one session.

    Args:
        reader: describes topics, and is told which to read.
        replica: holds their tables.
        buffer: is told which partitions are read.
        restored: what the replica remembers.
        published: the topics as the bridge last described them.
        order: what the operator wants rebuilt.
    """

    def __init__(
        self,
        reader: RecordReader,
        replica: ReplicaWriter[Any],
        buffer: CutBuffer,
        restored: Restored,
        published: Mapping[str, StoredTopic],
        order: RebuildOrder,
    ) -> None:
        self._reader = reader
        self._replica = replica
        self._buffer = buffer
        self._restored = restored
        self._published = dict(published)
        self._noted: set[str] = set()
        self._order = order
        self._facts: dict[str, TopicFacts] = {}
        self._since: dict[str, float] = {}
        self._met_at: dict[str, int | None] = {}
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._sift = sifter()
        self._told: set[str] = set()
        self._missing: set[str] = set()
        self._look_due = time.monotonic() + _LOOK_S

    @property
    def watched(self) -> Collection[str]:
        """The topics that are read."""
        return self._facts.keys()

    @property
    def compaction_lag_s(self) -> float:
        """The shortest ``min.compaction.lag.ms`` of all topics, in seconds."""
        return min((each.compaction_lag_s for each in self._facts.values()), default=0.0)

    def take_up(self, tables: Mapping[str, str], now: float) -> None:
        """Begins to read topics.

        Args:
            tables: ``namespace.table`` by topic.
            now: seconds since 1970, taken before.
        """
        found = self._reader.look_at(tables)
        for topic in sorted(tables):
            facts = found.get(topic)
            if facts is None:
                self._missing.add(topic)
                self._replica.stop_topic(topic, f"topic {topic!r} does not exist")
                continue
            self._take_up(topic, facts, self._order.names(tables[topic]), now)

    def _take_up(self, topic: str, facts: TopicFacts, is_asked: bool, now: float) -> None:
        stored = {number: at for (name, number), at in self._restored.offsets.items() if name == topic}
        since = self._restored.read_since.get(topic, self._restored.caught_up_at)
        why = why_anew(stored, self._restored.topic_ids.get(topic, ""), facts)
        is_other = why is not None
        if why is None and stored and now - since >= longest_absence_s(facts):
            why = "it was not read for longer than its topic keeps tombstones (delete.retention.ms)"
        beginning = self._replica.begin(
            topic,
            facts.topic_id,
            ends=facts.ends,
            resumes=bool(stored),
            why_anew=why or "",
            is_asked=is_asked,
            now=now,
        )
        if beginning == "stopped":
            return
        partitions = [(topic, number) for number in range(len(facts.ends))]
        begins = {} if beginning == "anew" else stored
        self._reader.add({each: begins.get(each[1], 0) for each in partitions})
        self._buffer.watch(partitions, state=True, outside=beginning != "joined")
        self._facts[topic] = facts
        self._ids[topic] = f"{facts.topic_id}/{len(facts.ends)}"
        self._since[topic] = now if beginning == "anew" else since
        published = self._published.get(topic)
        self._counts[topic] = len(facts.ends)
        if published is not None:
            self._spread(topic, facts, published.known)
        # Until a cut includes the record in which the bridge notes the topic as it is now, the topic may lack rows
        if published is not None and not _is_met(published.known, facts):
            self._met_at[topic] = None
        elif published is not None and (is_other or topic in self._noted):
            self._met_at[topic] = published.offset

    def leave_cut(self, topics: Collection[str], joined_since: float) -> None:
        """Takes topics out of the cut, which then no longer waits for them.

        Args:
            topics: their tables are not whole, or have records in doubt.
            joined_since: a moment up to which the topics in the cut were read completely.
        """
        for topic in topics:
            self._replica.leave_cut(topic)
            self._since[topic] = joined_since
        self._buffer.leave(topics)

    def saw(self, topic: str, known: KnownTopic, offset: int) -> None:
        """Notes how the bridge knows a topic, as it recorded in the progress topic."""
        facts = self._facts.get(topic)
        if facts is None:
            # The topic's definition comes later: the bridge may note a topic long before it writes the first row
            self._published[topic] = StoredTopic(known, offset)
            self._noted.add(topic)
            return
        self._spread(topic, facts, known)
        if self._met_at.get(topic, offset) is None and _is_met(known, facts):
            self._met_at[topic] = offset

    def _spread(self, topic: str, facts: TopicFacts, known: KnownTopic) -> None:
        """Notes how many partitions the bridge uses. A partition that was added later holds no keys yet."""
        if known.topic_id == facts.topic_id:
            self._counts[topic] = len(known.low)

    def unmet(self, cut: Cut) -> frozenset[str]:
        """Returns topics that were recreated or lost records, if the bridge has not noticed it as of this cut."""
        return frozenset(topic for topic, at in self._met_at.items() if at is None or cut.offset <= at)

    def at_home(self, rows: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
        """Returns the rows without those that another program wrote into partitions where their keys do not belong."""
        at_home, strays = self._sift(rows, self._counts)
        for stray in strays:
            if stray.value is not None and stray.topic not in self._told:
                self._told.add(stray.topic)
                log.warning(
                    "another program wrote records into partitions where their keys do not belong: the sink leaves "
                    "them out",
                    topic=stray.topic,
                    partition=stray.partition,
                    offset=stray.offset,
                    remedy="find the other writer and stop it, then run cdc reconcile --repair",
                )
        return at_home

    def refuse_overdue(self, joined_since: float, joining: Collection[str], now: float) -> None:
        """Ends the session if Kafka may have removed a tombstone that was never read.

        Args:
            joined_since: a moment up to which the topics in the cut were read completely.
            joining: topics that join the cut now.
            now: seconds since 1970.

        Raises:
            BeginAnew: a tombstone may be lost; the next session rebuilds the table.
        """
        outside = self._buffer.outside
        for topic, facts in self._facts.items():
            if topic in outside and topic not in joining:
                continue
            since = self._since[topic] if topic in outside else joined_since
            if now - since >= longest_absence_s(facts):
                raise BeginAnew

    def look(self) -> None:
        """Checks every few seconds whether all topics are still the same.

        Raises:
            BeginAnew: a topic is gone, was recreated, or exists at last.
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see a topic.
        """
        if time.monotonic() < self._look_due:
            return
        found = self._reader.ids([*self._ids, *self._missing])
        self._look_due = time.monotonic() + _LOOK_S
        if found != self._ids:
            changed = sorted({topic for topic, _ in {*found.items()} ^ {*self._ids.items()}})
            log.warning(
                "topics have changed: looking at them again",
                topics=changed,
                remedy="wait: the next session checks each table by itself",
            )
            raise BeginAnew


def _is_met(known: KnownTopic, facts: TopicFacts) -> bool:
    """Returns whether the bridge knows the topic as it is now, including every record that it has lost."""
    return known.topic_id == facts.topic_id and all(
        seen >= now for seen, now in zip(known.low, facts.low, strict=False)
    )
