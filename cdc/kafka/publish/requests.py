"""Writes people's requests to a running bridge, as records of the progress topic outside its Kafka transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc.base.broker_log import BROKER_LOG
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.contract.backfill import request_key, request_value
from cdc.contract.record import BackfillRequest, RepairRequest
from cdc.contract.repair import repair_request_key, repair_request_value
from cdc.kafka.acls import Acl
from cdc.kafka.brokers import bad_option, connect, refused_connection
from cdc.kafka.client_threads import require_threads
from cdc.kafka.leaders import cut_off_brokers
from cdc.kafka.publish.transactional import PRODUCER_SETTINGS

_DEADLINE_S: Final = 20.0
_TOPIC_WITHIN_S: Final = 5.0
"""The bridge created the topic long ago. With the client's default, which is longer than the deadline, a request for a
topic that does not exist would only time out."""
_MISSING: Final = {KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}


def write_request(options: Mapping[str, Any], topic: str, request: BackfillRequest) -> None:
    """Write a request. On return every in-sync broker has it; a running bridge takes it within a second.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        topic: the progress topic.
        request: what to ask.

    Raises:
        TopicUnavailable: no broker took the request in time.
        TopicRefused: there is no such topic, or we may not write to it.
    """
    _write(options, topic, [(request_key(request.request), request_value(request))])


def withdraw_request(options: Mapping[str, Any], topic: str, request: str) -> None:
    """Withdraw a request that no bridge has taken yet; arguments and errors as for ``write_request``."""
    _write(options, topic, [(request_key(request), None)])


def write_repair(options: Mapping[str, Any], topic: str, parts: Iterable[RepairRequest]) -> None:
    """Write a repair request, part by part; arguments and errors as for ``write_request``."""
    records = [(repair_request_key(each.request, each.part), repair_request_value(each)) for each in parts]
    _write(options, topic, records)


def withdraw_repair(options: Mapping[str, Any], topic: str, request: str, parts: Iterable[int]) -> None:
    """Withdraw the parts of a repair that no bridge has done; arguments and errors as for ``write_request``."""
    _write(options, topic, [(repair_request_key(request, each), None) for each in parts])


def _write(options: Mapping[str, Any], topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    outcomes: list[KafkaError | None] = []
    refusals: list[CdcError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        outcomes.append(error)

    def failed(error: KafkaError) -> None:
        if (refusal := refused_connection(error)) is not None:
            refusals.append(refusal)

    settings = {
        **PRODUCER_SETTINGS,
        **options,
        **cut_off_brokers(options).bootstrap(),
        "delivery.report.only.error": False,
        "message.timeout.ms": int(_DEADLINE_S * 1000),
        "topic.metadata.propagation.max.ms": int(_TOPIC_WITHIN_S * 1000),
        "on_delivery": delivered,
        "error_cb": failed,
    }
    require_threads()
    try:
        producer = Producer(settings, logger=BROKER_LOG)
    except KafkaException as error:
        raise bad_option(error) from error
    connect(producer)
    try:
        for part in (records[:1], records[1:]):  # the first one goes alone: see ``first_records``
            sent = len(outcomes) + len(part)
            for key, value in part:
                producer.produce(topic, value, key, 0)
            while len(outcomes) < sent and not any(outcomes) and not refusals:
                producer.poll(0.1)
            if any(outcomes) or refusals:
                break
    except KafkaException as error:
        raise _refused(options, topic, error.args[0]) from error
    finally:
        producer.purge()  # what is still queued must not arrive after the command has reported a failure
    if refusals:
        raise refusals[0]
    for outcome in filter(None, outcomes):
        raise _refused(options, topic, outcome)


def _refused(options: Mapping[str, Any], topic: str, error: KafkaError) -> CdcError:
    if error.code() in _MISSING:
        return TopicRefused(f"topic {topic!r} does not exist", remedy="start the bridge (cdc run), which creates it")
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return TopicRefused(
            f"not authorised to write topic {topic!r}",
            remedy=Acl("topic", topic, ("Write", "Describe")).command(options),
        )
    return TopicUnavailable(
        f"cannot write the request to topic {topic!r}: {error.str()}",
        remedy="check that the broker is up and kafka.bootstrap is right, then ask again",
    )
