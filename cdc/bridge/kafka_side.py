"""What the loop does to Kafka: records, what they ask for, and the progress that covers them, committed together."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from cdc.base.config import Config
from cdc.base.errors import SourceRefused
from cdc.base.lsn import LSN, ZERO
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.needs import Empty
from cdc.bridge.order.repeats import Repeats
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.topic_watch import TopicWatch
from cdc.bridge.truncate import publish_tombstones
from cdc.contract.header import of_schema
from cdc.contract.naming import progress_topic
from cdc.contract.progress import progress_value, stream_key
from cdc.contract.record import Lead, Progress, Ready, RepairKey
from cdc.contract.repair import parts_of, repair_request_key, repair_request_value
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.publisher import KafkaPublisher

_BUSY_RECORDS: Final = 5_000
"""More than the brokers take in some hundredths of a second. A commit waits for all that is on its way, and so do the
stream's rows beside a backfill, which would fill the whole queue. It is up to a fifth slower meanwhile."""

log = structlog.get_logger("cdc.bridge")


class KafkaSide:
    """Of one session.

    Args:
        config: the whole configuration.
        publisher: started.
        registry: knows which definitions are written.
        watch: of the topics.
        resume: the stored progress.
        repeats: rows beyond it that are there already; None when there are none.
    """

    def __init__(
        self,
        config: Config,
        publisher: KafkaPublisher,
        registry: CapturedTables,
        watch: TopicWatch,
        resume: Progress,
        repeats: Repeats | None,
    ) -> None:
        self._config = config
        self._publisher = publisher
        self._registry = registry
        self._watch = watch
        self._tells_lead = resume.lead is not None
        self._repeats = repeats
        self._progress_topic = progress_topic(config.name)
        self._progress_key = stream_key(config.source.slot)

    @property
    def is_open(self) -> bool:
        """Whether the Kafka transaction holds records."""
        return self._publisher.is_open

    @property
    def is_busy(self) -> bool:
        """Whether so many records are on their way that the next commit would wait for them."""
        return self._publisher.queued > _BUSY_RECORDS

    def look(self) -> None:
        """See whether the topics are what they were, and let go of what they have by now; never waits.

        Raises:
            GapError: a topic lost records.
            TopicUnavailable: it did, and the next attempt closes the gap.
        """
        self._publisher.relieve()
        self._watch.look()

    def send(self, records: Sequence[Ready]) -> None:
        """Add records to the Kafka transaction, but for those that are there already."""
        if self._repeats is not None and not (records := self._repeats.left(records)):
            return
        self._publisher.produce_all(records)

    def describe(self, table: TableEncoder) -> None:
        """Add a table's definition, unless its topic was last written with it."""
        self._registry.describe(table, self._publisher.produce)

    def ask_again(self, table: str, keys: Sequence[bytes]) -> None:
        """Add the request to publish these keys once more, as the table has them by then: a repair, as a person's."""
        for part in parts_of(uuid.uuid4().hex, table, map(RepairKey, dict.fromkeys(keys))):
            key = repair_request_key(part.request, part.part)
            self._publisher.produce(self._progress_topic, key, repair_request_value(part), b"")

    def empty(
        self, need: Empty, *, commit: Callable[[], None], sign_of_life: Callable[[], None], stop: threading.Event
    ) -> bool:
        """Add tombstones for every live key of a topic, or what ``topics.truncate`` says; False when stopped.

        Those of a topic that begins anew name the definition by which their keys were written: a reader to whom a
        former key equals a new one, but in another partition, can tell them apart.

        Raises:
            SourceRefused: the table was truncated, and the configuration wants a person to decide.
        """
        name = need.table.relation.qualified_name
        if need.is_truncate and self._config.topics.truncate == "ignore":
            log.warning(
                "TRUNCATE ignored, as topics.truncate says",
                table=name,
                remedy="empty the topic by hand if its readers should follow: cdc backfill --sweep deletes "
                "what the table has not",
            )
            return True
        if need.is_truncate and self._config.topics.truncate == "fail":
            raise SourceRefused(
                f"table {name} was truncated, and topics.truncate is 'fail'",
                remedy="set topics.truncate to 'tombstone' (delete all its keys) or 'ignore' (keep them), then restart",
            )
        count = publish_tombstones(
            BrokerAdmin(self._config.kafka.client_options()),
            need.table.topic,
            need.header if need.is_truncate else self._of_former_keys(need),
            publisher=self._publisher,
            commit=commit,
            sign_of_life=sign_of_life,
            is_stopped=stop.is_set,
        )
        if need.is_truncate and count is not None:
            log.info("TRUNCATE published", table=name, tombstones=count)
        return count is not None

    def commit(self, progress: Progress) -> None:
        """Commit, with this progress."""
        value = progress_value(self._told(progress))
        self._publisher.produce(self._progress_topic, self._progress_key, value, b"")
        self._publisher.commit()

    def _told(self, progress: Progress) -> Progress:
        """What readers need to know beside it, where rows were ever published without a Kafka transaction."""
        if not self._tells_lead:
            return progress
        self._pass(progress.lsn)
        lead = Lead(ZERO, False) if self._repeats is None else Lead(self._repeats.greatest, True)
        return replace(progress, lead=lead)

    def _pass(self, lsn: LSN) -> None:
        """The stream was taken up to there: from where nothing is there already on, it is not looked at."""
        if self._repeats is not None and self._repeats.is_behind(lsn):
            self._repeats = None

    def _of_former_keys(self, need: Empty) -> bytes:
        last = self._registry.successions.last(need.table.topic)
        return need.header if last is None else of_schema(need.header, last.fingerprint)
