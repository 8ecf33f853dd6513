"""Every committed record of a topic, and whether their order is one that the topic contract allows."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.contract.header import TRUNCATE
from cdc.contract.ports import StoredRecord
from cdc.lab.proof.topic_side import EndSeen, open_consumer, operation, poll, read_header
from tests.support.waiting import eventually

_TIMEOUT_S = 30.0


class _Kind(Enum):
    ROW = auto()
    DELETED = auto()
    EMPTIED = auto()
    SAID = auto()
    """An envelope says that the row was deleted; its tombstone is the next record."""


_MAY_FOLLOW: Final[dict[_Kind, set[_Kind]]] = {
    _Kind.ROW: set(),
    _Kind.DELETED: {_Kind.ROW},
    _Kind.EMPTIED: {_Kind.ROW, _Kind.DELETED, _Kind.SAID},
    _Kind.SAID: {_Kind.DELETED, _Kind.EMPTIED},
}
"""At the same position: the tombstones of a table that begins anew have that of the change that showed it."""


@dataclass
class TopicAudit:
    """Checks records one by one: positions (lsn, seq) never go back in a partition, and grow with each record of a key.

    So no reader ever saw an older version of a row on top of a newer one, nor the same change twice. Memory grows with
    the keys, not with the records.
    """

    records: int = 0
    faults: list[str] = field(default_factory=list)
    _partitions: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    _keys: dict[tuple[str, bytes], tuple[int, int, int, _Kind]] = field(default_factory=dict)

    def add(self, record: StoredRecord) -> None:
        """Take a record; those of one partition in their order."""
        self.records += 1
        lsn, seq, fields = read_header(record.header)
        here = int(lsn), seq
        where = f"{record.topic}[{record.partition}]@{record.offset} {record.key!r} at {lsn}#{seq}"
        last = self._partitions.get((record.topic, record.partition), (0, 0))
        if here < last:
            self.faults.append(f"{where}: behind a record of {last[0]:X}#{last[1]} in the same partition")
        self._partitions[record.topic, record.partition] = here
        key = record.topic, record.key or b""
        kind = _kind(record, fields)
        partition, before_lsn, before_seq, was = self._keys.get(key, (record.partition, 0, 0, _Kind.ROW))
        before = before_lsn, before_seq
        if partition != record.partition:
            self.faults.append(f"{where}: the key also lies in partition {partition}")
        if here == before and kind not in _MAY_FOLLOW[was]:
            self.faults.append(f"{where}: came twice")
        elif was is _Kind.SAID and here != before:
            self.faults.append(f"{where}: no tombstone followed the envelope at {before[0]:X}#{before[1]}")
        elif here < before:
            self.faults.append(f"{where}: went back from {before[0]:X}#{before[1]}")
        self._keys[key] = record.partition, *here, kind


def _kind(record: StoredRecord, fields: Mapping[str, str]) -> _Kind:
    if record.value is None:
        return _Kind.EMPTIED if fields["op"] == TRUNCATE else _Kind.DELETED
    if "envelope" not in fields:
        return _Kind.ROW
    return _Kind.SAID if operation(record.value) == "d" else _Kind.ROW


def audit(records: Iterable[StoredRecord]) -> list[str]:
    """What is wrong with the records' order, one line each."""
    checked = TopicAudit()
    for record in records:
        checked.add(record)
    return checked.faults


def read_records(bootstrap: str, topics: Sequence[str]) -> list[StoredRecord]:
    """Committed records of ``topics`` up to their end now, in partition order, of a topic's partitions one by one."""
    missing = {(topic, partition): end for topic, partition, end in ends(bootstrap, topics)}
    records: dict[tuple[str, int], list[StoredRecord]] = defaultdict(list)
    consumer = open_consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in missing])
        deadline = time.monotonic() + _TIMEOUT_S
        while missing:
            assert time.monotonic() < deadline, f"the end of {sorted(missing)} was not reached"
            for read in poll(consumer):
                if isinstance(read, EndSeen):
                    if read.offset >= missing.get(read.partition, 0):
                        missing.pop(read.partition, None)
                else:
                    records[read.topic, read.partition].append(read)
    finally:
        consumer.close()
    return [record for place in sorted(records) for record in records[place]]


def ends(bootstrap: str, topics: Sequence[str]) -> list[tuple[str, int, int]]:
    """Topic, partition and end of each, with what is not committed yet."""
    # read_uncommitted, because markers of a decided Kafka transaction may still be on their way.
    options = {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": "read_uncommitted"}
    consumer = Consumer(options)
    try:
        ends = []
        for topic in topics:
            for partition in consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions:
                ends.append((topic, partition, _end(consumer, TopicPartition(topic, partition))))
        return ends
    finally:
        consumer.close()


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Its high watermark, once it has a leader: the bridge may be making the topic."""

    def asked() -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return None

    watermarks = eventually(asked, _TIMEOUT_S)
    assert watermarks is not None
    return watermarks[1]
