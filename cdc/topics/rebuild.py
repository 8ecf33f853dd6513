"""Measures how long a new reader needs to read a topic's whole state, and how much memory the state takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_what_is_stable
from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.scan import Begin

_OBJECT_BYTES: Final = 33
"""Bytes that CPython adds to those of a key or a value."""
_ENTRY_BYTES: Final = 105
"""Bytes that a dict takes for each key: between a third and two thirds of its slots are in use."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One reading of a topic, from its beginning to the end that it had when the reading began.

    Attributes:
        seconds: time by the wall clock.
        cpu_seconds: CPU time of this process.
        records: how many committed records were read.
        size: bytes of their keys and values.
        keys: how many keys have a value at the end.
        tombstones: how many records were tombstones.
        state_bytes: bytes of these keys and their values.
        whole: False when an open Kafka transaction hid the end.
    """

    seconds: float
    cpu_seconds: float
    records: int
    size: int
    keys: int
    tombstones: int
    state_bytes: int
    whole: bool

    @property
    def records_per_s(self) -> float:
        """Records read per second."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes read per second."""
        return self.size / self.seconds if self.seconds else 0.0

    @property
    def memory_per_million(self) -> int:
        """The estimated bytes of a Python dict with a million such keys and values."""
        return round(1e6 * (self.state_bytes / self.keys + 2 * _OBJECT_BYTES + _ENTRY_BYTES)) if self.keys else 0


def rebuild(cluster: Cluster, places: Sequence[PartitionPlace], *, begin: Begin) -> Rebuild:
    """Reads a topic as a new reader would, all partitions at the same time.

    Raises:
        TopicRefused: we may not read the topic.
        TopicUnavailable: no broker answers.
    """
    ends = cluster.ends(places)
    advance = begin(places[0], sum(each.last_stable - each.start for each in ends.values()))
    state: dict[bytes | None, int] = {}
    records = size = tombstones = 0
    reached: dict[int, int] = {place.partition: ends[place.topic, place.partition].start for place in places}
    started, cpu = time.monotonic(), time.process_time()
    for record in _records(cluster.options, places):
        records += 1
        key, value = record.key, record.value
        length = len(key or b"")
        if value is None:
            tombstones += 1
            state.pop(key, None)
        else:
            length += len(value)
            state[key] = length
        size += length
        if records % 1_000 == 0:
            advance(record.offset + 1 - reached[record.partition])
            reached[record.partition] = record.offset + 1
    return Rebuild(
        seconds=time.monotonic() - started,
        cpu_seconds=time.process_time() - cpu,
        records=records,
        size=size,
        keys=len(state),
        tombstones=tombstones,
        state_bytes=sum(state.values()),
        whole=all(each.last_stable == each.high_watermark for each in ends.values()),
    )


def _records(options: Mapping[str, Any], places: Sequence[PartitionPlace]) -> Any:
    return read_what_is_stable(BrokerAdmin(options), [(each.topic, each.partition) for each in places])
