"""Watches for topics that are deleted, made anew or cut short while the bridge runs, beside the main loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import structlog

from cdc.base.config import Config
from cdc.base.daemon.threads import Threads
from cdc.base.errors import CdcError, TopicUnavailable
from cdc.contract.gaps import TableGap, topic_gaps
from cdc.contract.known_topic import KnownTopic, known_topic_key, known_topic_value
from cdc.contract.naming import progress_topic
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.topic_state import look_at

_INTERVAL_S: Final = 10.0
"""A deleted topic cannot be brought back, so ten seconds are early enough to say so, and cost a broker nothing."""

Produce = Callable[[str, bytes, bytes | None, bytes], None]

log = structlog.get_logger("cdc.bridge")


class Captured(Protocol):
    """The captured tables, as far as this module needs them."""

    @property
    def topics(self) -> Mapping[str, Sequence[str]]:
        """Topics that must not lose a record, and the tables that are incomplete without them."""


class TopicWatch:
    """Looks at the topics every ten seconds, and records what it sees, which the next start compares with.

    Args:
        config: the whole configuration.
        admin: asks the brokers.
        captured: the tables whose topics are watched; there may be more of them later.
        recorded: the topics as they are on record.
        produce: writes a record into the Kafka transaction; called by ``look``.
        interval_s: seconds between two looks.
    """

    def __init__(
        self,
        config: Config,
        admin: BrokerAdmin,
        captured: Captured,
        recorded: Mapping[str, KnownTopic],
        produce: Produce,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._admin = admin
        self._progress_topic = progress_topic(config.name)
        self._captured = captured
        self._recorded = dict(recorded)
        self._produce = produce
        self._heals = config.heals_gaps
        self._thread = Threads(1, "topic-watch")
        self._answer: Future[dict[str, KnownTopic]] | None = None
        self._asked_for: list[str] = []
        self._interval_s = interval_s
        self._due = time.monotonic() + interval_s

    def look(self) -> None:
        """Ask the brokers if it is time, and judge their answer if it is there. Never waits; call it often.

        Raises:
            GapError: a topic lost records.
            TopicUnavailable: a topic lost records, and the next attempt closes the gap.
        """
        if self._answer is not None:
            if self._answer.done():
                answer, self._answer = self._answer, None
                self._judge(answer)
        elif time.monotonic() > self._due:
            self._due = time.monotonic() + self._interval_s
            self._asked_for = list(self._captured.topics)
            self._answer = self._thread.submit(look_at, self._admin, self._asked_for)

    def record(self, seen: Mapping[str, KnownTopic]) -> None:
        """Record topics that differ from what is on record, in the open Kafka transaction."""
        for topic, state in seen.items():
            if self._recorded.get(topic) != state:
                self._recorded[topic] = state
                self._produce(self._progress_topic, known_topic_key(topic), known_topic_value(state), b"")

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _judge(self, answer: Future[dict[str, KnownTopic]]) -> None:
        try:
            now = answer.result()
        except CdcError as error:
            log.debug("the topics could not be looked at", error=error.message)
            return
        captured = self._captured.topics
        # A table may have joined since: the answer says nothing about its topic, which may be on record from before
        tables = {topic: captured[topic] for topic in self._asked_for if topic in captured}
        for gap in topic_gaps(self._recorded, now, tables):
            if self._heals and isinstance(gap, TableGap):
                raise TopicUnavailable(
                    f"{gap.message}; starting again to publish it anew",
                    remedy="wait: the tables are published again by themselves; `cdc status` says how far",
                ) from gap
            raise gap
        self.record(now)
