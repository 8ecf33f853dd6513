"""The admin client's answers, and whose reports they go by."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from cdc.base.errors import TopicRefused, TopicUnavailable
from cdc.kafka.brokers import BrokerAdmin, offset_of

_LIST = "confluent_kafka.admin.AdminClient.list_topics"
_OFFSETS = "confluent_kafka.admin.AdminClient.list_offsets"


def no_answer(*_: Any, **__: Any) -> Any:
    raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers"))


def offset_at(offset: int, epoch: int = 0) -> ListOffsetsResultInfo:
    return ListOffsetsResultInfo(offset, -1, epoch)


def answer(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(topics={}, brokers={1: SimpleNamespace(host="127.0.0.1", port=1)})


def test_a_refusal_counts_until_the_brokers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that serves for hours: a password that was wrong an hour ago is not why nobody answers now."""
    reports: list[Callable[[KafkaError], None]] = []
    init = AdminClient.__init__

    def opened(client: AdminClient, settings: dict[str, Any], **more: Any) -> None:
        reports.append(settings["error_cb"])
        init(client, settings, **more)

    monkeypatch.setattr(AdminClient, "__init__", opened)
    admin = BrokerAdmin({"bootstrap.servers": "127.0.0.1:1"})
    reports[0](KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "invalid credentials"))

    monkeypatch.setattr(_LIST, no_answer)
    with pytest.raises(TopicRefused, match="invalid credentials"):
        admin.metadata(timeout_s=0)

    monkeypatch.setattr(_LIST, answer)
    admin.metadata(timeout_s=0)
    monkeypatch.setattr(_LIST, no_answer)
    with pytest.raises(TopicUnavailable, match="cannot reach Kafka"):
        admin.metadata(timeout_s=0)


def test_offsets_that_the_client_overlooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It notices the leaders' answer when it is told of a topic again; until then it stood for seconds."""
    admin = BrokerAdmin({"bootstrap.servers": "127.0.0.1:1"})
    overlooked: Future[Any] = Future()

    asked: list[tuple[str, float]] = []

    def told(_: BrokerAdmin, topic: str, *, timeout_s: float) -> Any:
        asked.append((topic, timeout_s))
        if len(asked) == 2:  # the first question is how many brokers there are
            overlooked.set_result(offset_at(7))
        return answer()

    monkeypatch.setattr(_OFFSETS, lambda *_, **__: {TopicPartition("orders", 0): overlooked})
    monkeypatch.setattr(BrokerAdmin, "metadata", told)
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    assert admin.offsets([("orders", 0)], latest, timeout_s=5) == {("orders", 0): 7}


def test_an_offset_that_nobody_answered_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka reports the answer that a broken connection has lost as an offset, without an error."""
    admin = BrokerAdmin({"bootstrap.servers": "127.0.0.1:1"})
    offsets = [OFFSET_INVALID, 7]

    def asked(*_: Any, **__: Any) -> dict[TopicPartition, Future[Any]]:
        answered: Future[Any] = Future()
        answered.set_result(offset_at(offsets.pop(0)))
        return {TopicPartition("orders", 0): answered}

    monkeypatch.setattr(_OFFSETS, asked)
    monkeypatch.setattr(_LIST, answer)
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    assert admin.offsets([("orders", 0)], latest, timeout_s=5) == {("orders", 0): 7}

    lost: Future[Any] = Future()
    lost.set_result(offset_at(OFFSET_INVALID))
    failure = offset_of(lost, 0)
    assert isinstance(failure, KafkaError)
    assert failure.code() == KafkaError._TRANSPORT


@pytest.mark.parametrize(
    ("epoch", "newest", "outcome"),
    [
        (4, 4, 7),
        (5, 4, 7),
        (4, 5, KafkaError.NOT_LEADER_FOR_PARTITION),
        (4, None, KafkaError.LEADER_NOT_AVAILABLE),
        (-1, 4, 7),  # an old broker does not tell
    ],
)
def test_the_answer_of_a_former_leader_does_not_count(epoch: int, newest: int | None, outcome: int) -> None:
    future: Future[Any] = Future()
    future.set_result(offset_at(7, epoch))
    found = offset_of(future, newest)
    assert (found.code() if isinstance(found, KafkaError) else found) == outcome
