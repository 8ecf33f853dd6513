"""librdkafka's consumer and admin client as every reader here uses them, and its errors in this project's words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from cdc.errors import CdcError, ConfigError, TopicRefused, TopicUnavailable

REQUEST_TIMEOUT_S: Final = 10.0
"""A broker that does not answer a metadata or offset request for this long counts as away."""

_CONSUMER_SETTINGS: Final[dict[str, Any]] = {
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
    # Per partition and answer: short runs, so that partitions advance side by side and few records are held back.
    "fetch.message.max.bytes": 131_072,
    # Bounds the memory of records fetched ahead, with what librdkafka needs to keep them about twice as much.
    "queued.max.messages.kbytes": 16_384,
    # After a full queue: how soon to fetch again. The default, a second, would starve a fast reader.
    "fetch.queue.backoff.ms": 2,
    "log.connection.close": False,
}

_MISSING: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_FORBIDDEN: Final = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_NOT_LET_IN: Final = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}
_OFFSET_GONE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}
_BAD_OPTION: Final = {KafkaError._INVALID_ARG, KafkaError._CONFLICT}

_log = logging.getLogger("cdc.kafka")


def open_consumer(options: Mapping[str, Any], **settings: Any) -> Consumer:
    """A consumer that reads committed records of partitions it is told to, and nothing else.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        settings: callbacks and other arguments of our own.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """
    try:
        return Consumer({**_CONSUMER_SETTINGS, **options}, logger=_log, **settings)
    except KafkaException as error:
        raise translated(error.args[0], "the Kafka client") from error


def open_admin(options: Mapping[str, Any]) -> AdminClient:
    """An admin client: for offsets and metadata only.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """
    try:
        return AdminClient({"log.connection.close": False, **options}, logger=_log)
    except KafkaException as error:
        raise translated(error.args[0], "the Kafka client") from error


def topic_partitions(admin: AdminClient, topic: str) -> list[tuple[str, int]]:
    """The topic's partitions, in order; none when there is no such topic.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not see the topic.
    """
    try:
        metadata = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise translated(error.args[0], f"topic {topic!r}") from error
    if metadata is None:
        return []
    if metadata.error is not None:
        if metadata.error.code() in _MISSING:
            return []
        raise translated(metadata.error, f"topic {topic!r}")
    return [(topic, number) for number in sorted(metadata.partitions)]


def missing_topic(topic: str) -> TopicRefused:
    """There is no such topic."""
    return TopicRefused(
        f"topic {topic!r} does not exist", remedy="start the bridge (cdc run), which creates it; or correct `name`"
    )


def translated(error: KafkaError, subject: str) -> CdcError:
    """What librdkafka reports, as whose fault it is.

    Args:
        error: librdkafka's report.
        subject: what it is about, for instance ``topic 'shop.public.orders'``.
    """
    code, text = error.code(), error.str()
    if code in _MISSING:
        return TopicRefused(f"{subject} does not exist", remedy="start the bridge (cdc run), which creates it")
    if code in _FORBIDDEN:
        return TopicRefused(f"not authorised to read {subject}", remedy=f"grant READ and DESCRIBE on {subject}")
    if code in _NOT_LET_IN:
        return TopicRefused(f"Kafka refused the connection: {text}", remedy="check kafka.options: security and SASL")
    if code in _OFFSET_GONE:
        return TopicRefused(
            f"{subject} no longer has the offset to go on from: it was deleted and made anew, or lost data",
            remedy="mirror it from the beginning: delete this sink's rows from the tables of schema cdc in the replica",
        )
    if code in _BAD_OPTION:
        return ConfigError(f"kafka.options: {text}", remedy="see librdkafka's CONFIGURATION.md for names and values")
    return TopicUnavailable(f"{subject}: {text}")
