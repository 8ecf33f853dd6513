"""A service's own state under random steps: nothing is counted twice or forgotten, however a step or an instance ends.

Topics of the broker that the tests share. ``SEED=42`` replays a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import orjson
import pytest
from confluent_kafka import Producer
from hypothesis import strategies
from hypothesis.stateful import rule

from cdc.base.errors import FencedError, TopicUnavailable
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_topic
from cdc.lab.stack import Kafka
from cdc.state import ChangelogStore, PartitionState, StoredRecord, TopicsConfig
from tests.support.names import unique
from tests.support.soak import times
from tests.support.stateful import Machine, run_machine
from tests.support.topic_settings import make_topic
from tests.support.waiting import eventually

State = dict[str, Any]

PARTITIONS: Final = 2
KEYS: Final = ("ann", "bob", "cleo", "é", "")
KINDS: Final = ("seen", "bought", "left")

sent = strategies.lists(
    strategies.tuples(
        strategies.integers(0, PARTITIONS - 1), strategies.sampled_from(KEYS), strategies.sampled_from(KINDS)
    ),
    min_size=1,
    max_size=6,
)


def count(state: State | None, kind: str) -> State | None:
    """How often; who leaves is forgotten."""
    return None if kind == "left" else {**(state or {}), kind: (state or {}).get(kind, 0) + 1}


def handle(event: StoredRecord, part: PartitionState) -> None:
    assert event.key is not None
    assert event.value is not None
    counted = count(part.get(event.key), event.value.decode())
    if counted is None:
        part.delete(event.key)
    else:
        part.put(event.key, counted)
    assert dict(part.items()).get(event.key) == part.get(event.key) == counted


class Service(Machine):
    """A source, an instance that counts, and all counts in a dictionary for each partition."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.options, self.name = options, unique("state-")
        self.source = f"{self.name}-source"
        make_topic(options, self.source, PARTITIONS, "delete")
        self.producer = Producer({**options})
        self.counts: list[dict[bytes, State]] = [{} for _ in range(PARTITIONS)]
        self.waiting = 0
        self.store = self.opened()

    def opened(self) -> ChangelogStore:
        return ChangelogStore(
            self.options,
            app=self.name,
            store="counts",
            source=self.source,
            topics=TopicsConfig(segment_ms=100, min_compaction_lag_ms=0, min_cleanable_dirty_ratio=0.01),
        )

    @rule(some=sent)
    def send(self, some: Sequence[tuple[int, str, str]]) -> None:
        for partition, name, kind in some:
            self.producer.produce(self.source, key=name.encode(), value=kind, partition=partition)
            counts, key = self.counts[partition], name.encode()
            counted = count(counts.pop(key, None), kind)
            if counted is not None:
                counts[key] = counted
        self.producer.flush()
        self.waiting += len(some)

    @rule()
    def catch_up(self) -> None:
        self._catch_up()

    @rule(some=sent, at=strategies.integers(1, 4))
    def fail_within_a_step(self, some: Sequence[tuple[int, str, str]], at: int) -> None:
        """A step whose handler raises has not happened, and closes the store.

        How many steps came before it, Kafka decides. So all is caught up with, or the next steps would depend on that.
        """
        self.send(some)
        seen, last = 0, min(at, self.waiting)

        def failing(event: StoredRecord, part: PartitionState) -> None:
            nonlocal seen
            handle(event, part)
            seen += 1
            if seen == last:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            eventually(lambda: self._step(failing) and False)
        with pytest.raises(TopicUnavailable):
            self.store.step(handle)
        self.store = self.opened()
        self._catch_up()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()

    @rule(some=sent)
    def take_over(self, some: Sequence[tuple[int, str, str]]) -> None:
        """Another process of the same name goes on, and this one is told before it counts anything."""
        first, self.store = self.store, self.opened()
        with closing(first):
            self._catch_up()
            self.send(some)
            with pytest.raises(FencedError):
                eventually(lambda: first.step(handle, timeout_s=0.1) and False)
        self._catch_up()

    def finish(self) -> None:
        self.reopen()
        self._catch_up()
        stored: list[dict[bytes, State]] = [{} for _ in range(PARTITIONS)]
        for record in read_topic(BrokerAdmin(self.options), f"{self.name}-counts-changelog"):
            assert record.key is not None
            stored[record.partition].pop(record.key, None)
            if record.value is not None:
                stored[record.partition][record.key] = orjson.loads(record.value)
        assert stored == self.counts

    def close(self) -> None:
        self.store.close()
        del self.producer  # it would ask for its brokers for as long as the failing machine is remembered

    def _catch_up(self) -> None:
        """Until all that was sent is counted once, and the changelog says the same."""
        eventually(lambda: self._step(handle) >= 0 and self.waiting == 0 and len(self.store.parts) == PARTITIONS)
        assert self.waiting == 0
        found = [dict(self.store.parts[number].items()) for number in range(PARTITIONS)]
        assert found == self.counts

    def _step(self, handler: Any) -> int:
        counted = self.store.step(handler, timeout_s=0.1)
        self.waiting -= counted
        return counted


@pytest.mark.soak
@pytest.mark.timeout(times(600, soak=7200))
def test_a_service_counts_everything_once(kafka: Kafka) -> None:
    options = {"bootstrap.servers": kafka.bootstrap}
    run_machine(lambda: Service(options), examples=times(4, soak=200), steps=times(15, soak=60))
