"""Kafka in memory, for the producers of this room: the world's model, alone with one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from cdc.contract.header import HEADER_NAME
from cdc.kafka.publish import application, publisher, requests, row_producer, transactional
from tests.world import kafka_clients
from tests.world.kafka_alone import kafka_alone


class ScriptedProducer(kafka_clients.Producer):
    """The model's producer, whose calls may fail as a test wants.

    Attributes:
        failures: by name of a call, the errors that its next calls raise.
        groups: what was sent with ``send_offsets_to_transaction``.
    """

    failures: dict[str, list[KafkaError | BufferError]]
    groups: list[tuple[list[tuple[str, int, int, str]], object]]
    made: list[dict[str, Any]]

    def __init__(self, conf: dict[str, Any], **others: Any) -> None:
        self.made.append(conf)
        super().__init__(conf, **others)

    def produce(self, *args: Any, **named: Any) -> None:
        self._fail("produce")
        super().produce(*args, **named)

    def list_topics(self, *args: Any, **named: Any) -> Any:
        self._fail("list_topics")
        return super().list_topics(*args, **named)

    def poll(self, timeout: float = -1) -> int:
        self._fail("poll")
        return super().poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        self._fail("flush")
        return super().flush(timeout)

    def begin_transaction(self) -> None:
        self._fail("begin_transaction")
        super().begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        self._fail("commit_transaction")
        super().commit_transaction(timeout)

    def send_offsets_to_transaction(self, places: list[Any], group: object, timeout: float) -> None:
        self._fail("send_offsets_to_transaction")
        assert timeout > 0
        self.groups.append(([(each.topic, each.partition, each.offset, each.metadata) for each in places], group))

    def _fail(self, call: str) -> None:
        if waiting := self.failures.get(call):
            error = waiting.pop(0)
            raise error if isinstance(error, BufferError) else KafkaException(error)


class InMemory:
    """Brokers that every producer of this room finds, and the clock of their world.

    Attributes:
        client: the class of its producers.
        made: the settings of each producer.
        groups: offsets of consumer groups that were sent, and the groups.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns, self.cluster = kafka_alone()
        kafka_clients.listen(self.cluster)
        self.options: dict[str, Any] = {"bootstrap.servers": self.cluster.address}
        self.failures: dict[str, list[KafkaError | BufferError]] = {}
        self.groups: list[tuple[list[tuple[str, int, int, str]], object]] = []
        self.made: list[dict[str, Any]] = []
        attributes = {"failures": self.failures, "groups": self.groups, "made": self.made}
        self.client = type("Client", (ScriptedProducer,), attributes)
        for module in (transactional, row_producer, requests):
            monkeypatch.setattr(module, "Producer", self.client)
        for module in (transactional, row_producer, publisher, application):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        """The world's time, in place of ``time.monotonic``."""
        return self.turns.now

    def create(self, topic: str = "t", count: int = 1, **settings: str) -> str:
        """Create a topic; returns its name."""
        assert (
            self.cluster.create(topic, count, {name.replace("_", "."): each for name, each in settings.items()}) is None
        )
        return topic

    def fail(self, call: str, *errors: KafkaError | BufferError) -> None:
        """Let the next calls fail."""
        self.failures.setdefault(call, []).extend(errors)

    def messages(self, topic: str = "t", number: int = 0) -> list[Message]:
        """Returns what readers of committed records find in a partition."""
        self.turns.settle()
        log = self.cluster.log(topic, number)
        assert log is not None
        return list(log.read(log.low, log.stable, 1_000_000, committed=True)[0])

    def records(self, topic: str = "t", number: int = 0) -> list[tuple[bytes | None, bytes | None]]:
        """Returns keys and values of what readers of committed records find in a partition."""
        return [(each.key(), each.value()) for each in self.messages(topic, number)]

    def headers(self, topic: str = "t", number: int = 0) -> list[object]:
        """Returns the one header of each record there; None for a record without headers."""
        return [
            dict(each.headers() or ()).get(HEADER_NAME) if each.headers() else None
            for each in self.messages(topic, number)
        ]

    def until(self, is_done: Callable[[], object]) -> None:
        """Let time pass until it is done."""
        for _ in range(1_000):
            self.turns.settle()
            if is_done():
                return
            self.turns.now += 0.01
        raise AssertionError("never")
