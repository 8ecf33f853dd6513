"""Another bridge took over only where one did: Kafka says the same of a transaction that was open for too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc.base.errors import FencedError, TopicUnavailable
from cdc.kafka.publish import publisher as bridge_side
from cdc.kafka.publish import transactional
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.transactional import PRODUCER_SETTINGS
from tests.support.waiting import eventually

TIMEOUT_S = PRODUCER_SETTINGS["transaction.timeout.ms"] / 1_000


class FencedClient:
    """Kafka's client, as far as the publisher asks it; each of its commits is refused."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __len__(self) -> int:
        return 0

    def list_topics(self, topic: str, _timeout_s: float) -> Any:
        """Each topic has one partition."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def begin_transaction(self) -> None: ...

    def produce(self, *_: object) -> None: ...

    def commit_transaction(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    def abort_transaction(self, _timeout_s: float) -> None: ...

    def purge(self) -> None: ...

    def poll(self, _timeout_s: float) -> None: ...


class Clock:
    """Goes when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (transactional, bridge_side):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def publisher(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaPublisher]:
    monkeypatch.setattr(transactional, "Producer", FencedClient)
    options: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1"}
    with closing(KafkaPublisher(options, transactional_id="cdc-shop", max_message_bytes=1_000)) as made:
        yield made


def test_fenced_soon_after_the_transaction_began_somebody_took_over(publisher: KafkaPublisher, clock: Clock) -> None:
    clock.now += 2 * TIMEOUT_S  # since the session began, which says nothing
    publisher.produce("t", b"key", b"value", b"")
    with pytest.raises(FencedError):
        publisher.commit()


def test_fenced_behind_the_timeout_nobody_need_have(publisher: KafkaPublisher, clock: Clock) -> None:
    """A bridge alone ended with exit code 5, and the advice to stop one of the two."""
    publisher.produce("t", b"key", b"value", b"")
    clock.now += TIMEOUT_S + 1
    with pytest.raises(TopicUnavailable, match="open for more than 60 s"):
        publisher.commit()


def test_a_progress_beside_rows_is_a_kafka_transaction_of_its_own(publisher: KafkaPublisher, clock: Clock) -> None:
    """Who had published nothing but rows for a minute, and was fenced, took its last one for open all the time."""
    clock.now += TIMEOUT_S + 1
    publisher.write("t", b"progress", b"1")
    with pytest.raises(FencedError):
        eventually(publisher.is_written)
