"""librdkafka's consumer and admin client as every reader here uses them, and its errors in this project's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from cdc.base.broker_log import BROKER_LOG, BROKERS_AWAY
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.kafka.acls import Acl
from cdc.kafka.brokers import CONNECTING, BrokerAdmin, bad_option, refused_connection

REQUEST_TIMEOUT_S: Final = 10.0
"""A broker that does not answer a metadata or offset request for this long counts as away."""

_CONSUMER_SETTINGS: Final[dict[str, Any]] = {
    **CONNECTING,
    # Demanded by the client; no group is ever joined and no offset stored there.
    "group.id": "cdc-no-group",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Without a group nothing is lost by a long pause between two polls (while a big cut is applied).
    "max.poll.interval.ms": 86_400_000,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # A stored offset that is gone means that the topic was made anew: an error, never a silent jump.
    "auto.offset.reset": "error",
    # The brokers answer at once when there is data; this is only how often they say that there is none.
    "fetch.wait.max.ms": 50,
    # Per partition and answer. A producer's batch is 1 MB at most, less than half of that compressed. Of batches that
    # are larger than this, the brokers put one into an answer: its partition runs ahead of the others, and what it
    # brings is held back. Longer runs would do that, too, and take memory.
    "fetch.message.max.bytes": 524_288,
    # Bounds the memory of records fetched ahead, with what librdkafka needs to keep them about twice as much.
    "queued.max.messages.kbytes": 8_192,
    # After a full queue: how soon to fetch again. The default, a second, would starve a fast reader.
    "fetch.queue.backoff.ms": 2,
}

_MISSING: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_FORBIDDEN: Final = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
OFFSET_GONE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}


def open_consumer(options: Mapping[str, Any], **settings: Any) -> Consumer:
    """A consumer that reads committed records of partitions it is told to, and nothing else.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        settings: callbacks and other arguments of our own.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """
    try:
        return Consumer({**_CONSUMER_SETTINGS, **options}, logger=BROKER_LOG, **settings)
    except KafkaException as error:
        raise bad_option(error) from error


def topic_partitions(admin: BrokerAdmin, topic: str) -> list[tuple[str, int]]:
    """The topic's partitions, in order; none when there is no such topic.

    Args:
        admin: asks.
        topic: its name.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not see the topic.
    """
    metadata = admin.metadata(topic, timeout_s=REQUEST_TIMEOUT_S).topics.get(topic)
    if metadata is None:
        return []
    if metadata.error is not None:
        if metadata.error.code() in _MISSING:
            return []
        raise translated(metadata.error, topic, admin.options)
    return [(topic, number) for number in sorted(metadata.partitions)]


class TopicMissing(TopicRefused):
    """There is no such topic."""


def missing_topic(topic: str) -> TopicMissing:
    """There is no such topic."""
    return TopicMissing(
        f"topic {topic!r} does not exist", remedy="start the bridge (cdc run), which creates it; or correct `name`"
    )


_GRANT: Final = "run `cdc grants kafka`: it prints the rights that bridge and sink need"


def translated(
    error: KafkaError, topic: str | None, options: Mapping[str, Any], *, needs: Sequence[str] = ("Read",)
) -> CdcError:
    """What librdkafka reports, as whose fault it is.

    Args:
        error: librdkafka's report.
        topic: what it is about; None when it is about the brokers.
        options: of the client.
        needs: the rights on the topic that its reader has to have.
    """
    code, text = error.code(), error.str()
    subject = "Kafka" if topic is None else f"topic {topic!r}"
    if code in _MISSING:
        return TopicMissing(f"{subject} does not exist", remedy="start the bridge (cdc run), which creates it")
    if code in _FORBIDDEN:
        remedy = _GRANT if topic is None else Acl("topic", topic, needs).remedy(options)
        return TopicRefused(f"not authorised to read {subject}", remedy=remedy)
    if (refusal := refused_connection(error)) is not None:
        return refusal
    if code in OFFSET_GONE:
        return TopicUnavailable(
            f"{subject} no longer has the offset to go on from: it was deleted and made anew, or lost data",
            remedy="wait: its table is rebuilt by itself; `cdc status` says how far",
        )
    return TopicUnavailable(
        f"{subject}: {text}",
        remedy=BROKERS_AWAY,
    )
