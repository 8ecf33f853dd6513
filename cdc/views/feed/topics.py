"""Topics of other programs → tables of a view: one attempt, until it is told to stop or an error ends it.

Theory of operation. There are no cuts. The session writes what it read, with the offsets to go on from, and readers
see it. To find out what that is worth, it asks the brokers now and then where the partitions end
(``TopicReader.fence``; the last offset counts as a record, because other programs may write without Kafka
transactions). Once a topic is read to there, its table shows everything that the topic held when the question was
asked. That makes the table exact. It also says since when tombstones may have been missed: a topic that was not read to
its end for longer than it keeps tombstones is read anew, into another generation.

A topic that cannot be read as a table (it does not exist, or is not compacted) is logged, left alone, and checked again
later. The other topics go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from cdc.contract.ports import BeginAnew, Partition, RecordReader, TopicFacts
from cdc.kafka.replay.horizon import ClockWatch, longest_absence_s, why_anew
from cdc.sink.apply.topics import raise_set_back
from cdc.views.table.topic_writer import TopicWriter

_RECORDS_PER_POLL: Final = 5_000
_RECORDS_PER_COMMIT: Final = 30_000
"""Records of one commit while a table loads. Afterwards each poll is one commit."""
_POLL_S: Final = 0.1
_ASK_S: Final = 1.0
"""How long to wait at least between two questions for the ends."""
LOOK_S: Final = 5.0
_QUIET_S: Final = 10.0
"""The longest time without a commit. A commit without records still records that the tables are up to date."""

log = structlog.get_logger("cdc.view")


class TopicSession:
    """One attempt to follow topics; ends when it is told to, or with an error.

    Args:
        reader: fresh, with stamps.
        writer: fresh, and locked.
        topics: the topics to follow.
        stop: ends the attempt.
        on_commit: called after each commit with the number of changed rows by topic.
    """

    def __init__(
        self,
        reader: RecordReader,
        writer: TopicWriter,
        topics: list[str],
        stop: threading.Event,
        on_commit: Callable[[Mapping[str, int]], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._topics = topics
        self._stop = stop
        self._on_commit = on_commit
        self._facts: dict[str, TopicFacts] = {}
        self._ids: dict[str, tuple[str, int]] = {}
        self._fence: Mapping[Partition, int] = {}
        self._awaited: set[str] = set()
        self._asked_at = 0.0
        self._ask_due = self._committed_at = time.monotonic()
        self._look_due = self._committed_at + LOOK_S
        self._clock = ClockWatch()
        self._rows: dict[str, int] = {}
        self._pending = 0

    def run(self) -> None:
        """Follows the topics until ``stop`` is set, and writes what was read by then.

        Raises:
            BeginAnew: a new session must begin.
            CdcError: the supervisor decides by its class.
        """
        self._writer.restore()
        self._begin()
        self._commit()
        log.info("following", topics=len(self._facts))
        while not self._stop.is_set():
            read = self._read()
            self._ask()
            is_news = self._settle()
            self._refuse_overdue()
            if is_news or self._is_due(read):
                self._commit()
            self._look()
        self._commit()

    def _begin(self) -> None:
        now = self._now()  # taken first: a topic must never seem to have been read later than it was
        found = self._reader.look_at(self._topics)
        self._ids = _ids(found)
        for topic in self._topics:
            facts = found.get(topic)
            if why := _why_not(topic, facts):
                self._writer.stop(topic, why)
            elif facts is not None:
                self._take_up(topic, facts, now)

    def _take_up(self, topic: str, facts: TopicFacts, now: float) -> None:
        stored = self._writer.offsets(topic)
        why = why_anew(stored, self._writer.topic_id(topic), facts)
        if why is None and stored and now - self._writer.read_since(topic) >= longest_absence_s(facts):
            why = "it was not read for longer than its topic keeps tombstones (delete.retention.ms)"
        starts = self._writer.take_up(topic, facts.topic_id, facts.ends, why or "", now)
        self._reader.add({(topic, number): starts.get(number, 0) for number in range(len(facts.ends))})
        self._facts[topic] = facts

    def _read(self) -> int:
        """Writes the records that are there; returns how many there were."""
        if not self._facts:
            self._stop.wait(_POLL_S)
            return 0
        records = self._reader.poll(_RECORDS_PER_POLL, _POLL_S)
        for topic, count in self._writer.write(records).items():
            self._rows[topic] = self._rows.get(topic, 0) + count
        self._pending += len(records)
        return len(records)

    def _ask(self) -> None:
        """Asks where the topics end, once the ends of the previous question are reached."""
        if self._awaited or not self._facts or time.monotonic() < self._ask_due:
            return
        self._ask_due = time.monotonic() + _ASK_S
        # The time is taken first: the ends that come back may be newer, never older.
        self._asked_at, self._fence = self._now(), self._reader.fence(())
        self._awaited = set(self._facts)

    def _settle(self) -> bool:
        """Finds the topics that were read up to the fence; returns whether that changed the state of a table."""
        positions = self._reader.positions()
        far = {topic for (topic, number), end in self._fence.items() if positions.get((topic, number), 0) < end}
        reached = self._awaited - far
        self._awaited &= far
        changed = [topic for topic in reached if self._writer.reached(topic, self._asked_at)]
        return bool(changed)

    def _refuse_overdue(self) -> None:
        """Makes sure that no tombstone can have been compacted away unread.

        Raises:
            BeginAnew: one may have been, and the next session reads the topic anew; or the clock was set back, so that
                nobody can tell.
        """
        now = self._now()
        if self._clock.was_set_back:
            raise_set_back()
        for topic, facts in self._facts.items():
            if now - self._writer.read_since(topic) >= longest_absence_s(facts):
                raise BeginAnew

    def _now(self) -> float:
        """The time, in seconds since 1970, after a look whether the clock was set back."""
        return self._clock.note(time.time(), time.monotonic())

    def _is_due(self, read: int) -> bool:
        if not self._pending:
            return time.monotonic() - self._committed_at > _QUIET_S
        is_loading = any(self._writer.state(topic) in ("loading", "suspect") for topic in self._awaited)
        return not read or not is_loading or self._pending >= _RECORDS_PER_COMMIT

    def _commit(self) -> None:
        self._writer.commit(self._reader.positions())
        self._on_commit(self._rows)
        self._rows, self._pending = {}, 0
        self._committed_at = time.monotonic()

    def _look(self) -> None:
        """Checks every few seconds that all topics are still the same, and compacted.

        Raises:
            BeginAnew: a topic is gone, was recreated, is no longer compacted, or can be read now.
        """
        if time.monotonic() < self._look_due:
            return
        found = self._reader.look_at(self._topics)
        self._look_due = time.monotonic() + LOOK_S
        fit = {topic for topic, facts in found.items() if not _why_not(topic, facts)}
        if _ids(found) != self._ids or fit != self._facts.keys():
            log.warning(
                "a topic has changed: taking up all topics again",
                remedy="wait: the topics are taken up again by themselves",
            )
            raise BeginAnew


def _ids(found: Mapping[str, TopicFacts]) -> dict[str, tuple[str, int]]:
    """The id and the number of partitions of each topic."""
    return {topic: (facts.topic_id, len(facts.ends)) for topic, facts in found.items()}


def _why_not(topic: str, facts: TopicFacts | None) -> str:
    """Why a topic cannot be read as a table; empty when it can."""
    if facts is None:
        return f"topic {topic!r} does not exist"
    if facts.policy != "compact":
        return (
            f"topic {topic!r} is not compacted (cleanup.policy={facts.policy}), so rows go away that nobody deleted; "
            f"alter it: kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy=compact"
        )
    return ""
