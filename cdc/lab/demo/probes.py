"""Measures latency as a user would see it: one thread commits rows, and two others wait for them in topic and replica.

All times come from this process's clock, so no clocks need to be synchronised. The thread that watches the replica also
checks once a second that the shop's invariant holds there.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from statistics import quantiles
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec
import psycopg
from confluent_kafka import TopicPartition

from cdc.base.daemon.worker import Worker
from cdc.contract.ports import StoredRecord
from cdc.lab.demo.shop_tables import BROKEN_ORDERS
from cdc.lab.proof.topic_side import open_consumer, poll

_PROBE_INTERVAL_S: Final = 0.03
_LOOK_INTERVAL_S: Final = 0.004
_INVARIANT_INTERVAL_S: Final = 1.0
_FEWEST_PROBES: Final = 10
_SETTLE_S: Final = 0.5
"""How long the pipeline may take to empty after the traffic. Probes in this time count for neither phase."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of ``count`` probes: percentiles in seconds."""

    count: int
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, taken: list[float]) -> Latency | None:
        """Compute percentiles; None if there are too few values."""
        if len(taken) < _FEWEST_PROBES:
            return None
        cuts = quantiles(taken, n=100, method="inclusive")
        return cls(len(taken), cuts[49], cuts[98])


class Latencies(NamedTuple):
    """The latency of probes that were sent during the traffic, and after it."""

    under_load: Latency | None
    at_rest: Latency | None


@dataclass(slots=True)
class Interruption:
    """A daemon was dead from ``killed_s`` to ``started_s``, and delivered again at ``recovered_s`` (monotonic)."""

    daemon: str
    killed_s: float
    started_s: float = 0.0
    recovered_s: float = 0.0

    def touches(self, committed_s: float, arrived_s: float) -> bool:
        """Whether a probe was in flight during the interruption or the recovery from it."""
        return committed_s < (self.recovered_s or float("inf")) and arrived_s > self.killed_s


@dataclass(slots=True)
class Arrivals:
    """When each probe was committed and when it arrived, in monotonic seconds by probe number.

    Attributes:
        consistent_cuts: cuts of the replica that were checked and kept the invariant.
        broken_cuts: cuts that broke it.
    """

    committed: dict[int, float] = field(default_factory=dict)
    on_topic: dict[int, float] = field(default_factory=dict)
    on_replica: dict[int, float] = field(default_factory=dict)
    consistent_cuts: int = 0
    broken_cuts: int = 0

    def settle(self, interruptions: list[Interruption]) -> None:
        """Set when each interruption was over: when the first probe that was sent after the restart arrived."""
        for one in interruptions:
            side = self.on_topic if one.daemon == "run" else self.on_replica
            after = (side[n] for n, committed in self.committed.items() if committed > one.started_s and n in side)
            one.recovered_s = min(after, default=float("inf"))

    def latency(self, side: dict[int, float], interruptions: list[Interruption], *, load_ended_s: float) -> Latencies:
        """Returns the percentiles under load and at rest, of the probes that no interruption touched."""
        under_load, at_rest = [], []
        for number, committed in self.committed.items():
            arrived = side.get(number)
            if arrived is None or any(one.touches(committed, arrived) for one in interruptions):
                continue
            if committed > load_ended_s + _SETTLE_S:
                at_rest.append(max(arrived - committed, 0.0))
            elif committed < load_ended_s:
                under_load.append(max(arrived - committed, 0.0))
        return Latencies(Latency.of(under_load), Latency.of(at_rest))


class Probes:
    """Inserts rows into ``public.probes`` and watches them arrive while the ``with`` block runs.

    Args:
        source_dsn: the source database.
        bootstrap: the Kafka cluster.
        topic: the topic of ``public.probes``.
        replica_dsn: the replica, with ``public.probes`` and the shop's tables.
    """

    def __init__(self, source_dsn: str, bootstrap: str, topic: str, replica_dsn: str) -> None:
        self.arrivals = Arrivals()
        self._source_dsn, self._replica_dsn = source_dsn, replica_dsn
        self._bootstrap, self._topic = bootstrap, topic
        self._sent, self._done = threading.Event(), threading.Event()
        self._workers = [
            Worker(work, name=f"probes{work.__name__}") for work in (self._send, self._watch_topic, self._watch_replica)
        ]

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish_sending()
        self._done.set()
        for worker in self._workers:
            worker.join()

    def finish_sending(self) -> None:
        """Stop sending; on return, the last probe is committed."""
        self._sent.set()
        self._workers[0].join()

    def check(self) -> None:
        """Raise the error that ended one of the threads, if any."""
        for worker in self._workers:
            worker.check()

    def _send(self) -> None:
        with psycopg.connect(self._source_dsn, autocommit=True) as connection:
            number = 0
            while not self._sent.wait(_PROBE_INTERVAL_S):
                number += 1
                connection.execute("INSERT INTO probes VALUES (%s)", (number,))
                self.arrivals.committed[number] = time.monotonic()

    def _watch_topic(self) -> None:
        consumer = open_consumer(self._bootstrap)
        try:
            partitions = consumer.list_topics(self._topic, timeout=30).topics[self._topic].partitions
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in partitions])
            while not self._done.is_set():
                for read in poll(consumer, max_records=1):
                    if isinstance(read, StoredRecord):
                        number = msgspec.json.decode(read.key or b"", type=dict[str, int])["id"]
                        self.arrivals.on_topic.setdefault(number, time.monotonic())
        finally:
            consumer.close()

    def _watch_replica(self) -> None:
        arrived, next_look_at_orders = 0, 0.0
        with psycopg.connect(self._replica_dsn, autocommit=True) as connection:
            while not self._done.wait(_LOOK_INTERVAL_S):
                try:
                    newest = connection.execute("SELECT max(id) FROM probes").fetchone()
                    now = time.monotonic()
                    # Probes are committed one after the other, and a cut is a prefix of the commits. So when the newest
                    # probe is there, all earlier ones are, too.
                    reached = (newest[0] if newest else None) or 0
                    for number in range(arrived + 1, reached + 1):
                        self.arrivals.on_replica[number] = now
                    arrived = max(arrived, reached)
                    if now > next_look_at_orders:
                        self._look_at_orders(connection)
                        next_look_at_orders = now + _INVARIANT_INTERVAL_S
                except psycopg.errors.UndefinedTable:
                    continue  # the sink creates a table when it reads its first row

    def _look_at_orders(self, connection: psycopg.Connection[Any]) -> None:
        broken = connection.execute(BROKEN_ORDERS).fetchone()
        self.arrivals.consistent_cuts += broken == (0,)
        self.arrivals.broken_cuts += broken != (0,)
