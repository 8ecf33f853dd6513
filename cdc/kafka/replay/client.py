"""The consumer settings that every reader here uses, and librdkafka's errors translated into this project's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from cdc.base.broker_log import BROKER_LOG, BROKERS_AWAY
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.kafka.acls import Acl
from cdc.kafka.brokers import CONNECTING, BrokerAdmin, bad_option, refused_connection
from cdc.kafka.client_threads import require_threads
from cdc.kafka.leaders import cut_off_brokers

REQUEST_TIMEOUT_S: Final = 10.0
"""A broker that does not answer a metadata or offset request within this time counts as unavailable."""

_CONSUMER_SETTINGS: Final[dict[str, Any]] = {
    **CONNECTING,
    # The client demands a group; it never joins it, and stores no offset there.
    "group.id": "cdc-no-group",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Without a group, a long pause between two polls (while a big cut is applied) loses nothing.
    "max.poll.interval.ms": 86_400_000,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # A stored offset that is gone means that the topic was recreated or lost data: an error, never a silent jump.
    "auto.offset.reset": "error",
    # Brokers with data answer at once; this is how long they wait before they answer that there is none.
    "fetch.wait.max.ms": 50,
    # The limit per partition in one answer. Producers' batches have up to 1 MB, compressed less than half of that. With
    # a higher limit, one partition would run ahead of the others, and the cut would hold its records back in memory. A
    # batch that is larger than the limit still comes, one in an answer.
    "fetch.message.max.bytes": 524_288,
    # Limits the memory for records that were fetched ahead; with librdkafka's overhead, it is about twice as much.
    "queued.max.messages.kbytes": 8_192,
    # How soon to fetch again after the queue was full. The default, a second, would starve a fast reader.
    "fetch.queue.backoff.ms": 2,
}

_MISSING: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_FORBIDDEN: Final = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
OFFSET_GONE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}


def open_consumer(options: Mapping[str, Any], **settings: Any) -> Consumer:
    """Open a consumer that reads committed records of the partitions that it is assigned, without a group.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        settings: callbacks and other arguments for the client.

    Raises:
        ConfigError: librdkafka knows no such option or value.
        RuntimeError: this process gets no more threads.
    """
    require_threads()
    try:
        return Consumer(
            {**_CONSUMER_SETTINGS, **options, **cut_off_brokers(options).bootstrap()}, logger=BROKER_LOG, **settings
        )
    except KafkaException as error:
        raise bad_option(error) from error


def topic_partitions(admin: BrokerAdmin, topic: str) -> list[tuple[str, int]]:
    """Returns the topic's partitions, in order; none when there is no such topic.

    Args:
        admin: asks the brokers.
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
    """A topic that is needed does not exist."""


def missing_topic(topic: str) -> TopicMissing:
    """The error for a topic that does not exist."""
    return TopicMissing(
        f"topic {topic!r} does not exist", remedy="start the bridge (cdc run), which creates it; or correct `name`"
    )


_GRANT: Final = "run `cdc grants kafka`: it prints the rights that bridge and sink need"


def translated(
    error: KafkaError, topic: str | None, options: Mapping[str, Any], *, needs: Sequence[str] = ("Read",)
) -> CdcError:
    """Translate an error of librdkafka.

    Args:
        error: librdkafka's report.
        topic: the topic it concerns; None when it concerns the brokers.
        options: the client's settings.
        needs: the rights on the topic that its reader needs.
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
            f"{subject} no longer has the offset to go on from: it was deleted and created again, or lost data",
            remedy="wait: its table is rebuilt automatically; `cdc status` shows how far it is",
        )
    return TopicUnavailable(
        f"{subject}: {text}",
        remedy=BROKERS_AWAY,
    )
