"""The topic's side of the proof: every committed record from the beginning, folded to rows and checked one by one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.errors import TopicUnavailable
from cdc.base.lsn import LSN
from cdc.base.table_names import parts
from cdc.contract.ports import StoredRecord

_TIMEOUT_S: Final = 30.0
_PLAIN: Final = re.compile(rb"[^A-Za-z0-9_]")

Partition = tuple[str, int]


class LiveRow(NamedTuple):
    """The last record of a key: its value, and the columns (from 0) whose ``null`` is a JSON document, not NULL."""

    value: bytes
    null_documents: frozenset[int] = frozenset()


@dataclass(slots=True)
class TopicCopy:
    """What a reader of one topic ends up with, and what it saw on the way.

    Attributes:
        live: record key → row, of every key whose last record is not a tombstone.
        records: committed records read; ``tombstones`` of them had a null value.
        backward: coordinates of records whose (lsn, seq) lies before an earlier one's in the same partition.
        duplicates: coordinates of records that repeat another's (key, lsn, seq); a tombstone and a row behind it
            are none: that is a table that was made anew.
        toast_newer: records that carry ``toast=newer``.
    """

    live: dict[bytes, LiveRow] = field(default_factory=dict)
    records: int = 0
    tombstones: int = 0
    backward: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    toast_newer: int = 0
    _seen: set[tuple[bytes, int, int, bool]] = field(default_factory=set)
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, record: StoredRecord) -> None:
        """Take one committed record, in the order of its partition."""
        key = record.key or b""
        lsn, seq, fields = read_header(record.header)
        coordinates = f"{record.topic}[{record.partition}]@{record.offset} {key.decode()} {lsn}#{seq}"
        if (lsn, seq) < self._last.get(record.partition, (0, 0)):
            self.backward.append(coordinates)
        change = key, lsn, seq, record.value is None
        if change in self._seen:
            self.duplicates.append(coordinates)
        self._last[record.partition] = lsn, seq
        self._seen.add(change)
        self.records += 1
        self.toast_newer += fields.get("toast") == "newer"
        if record.value is None:
            self.tombstones += 1
            self.live.pop(key, None)
        else:
            nulls = fields.get("json_null")
            self.live[key] = LiveRow(record.value, frozenset(map(int, nulls.split(","))) if nulls else frozenset())


def read_header(header: bytes) -> tuple[LSN, int, dict[str, str]]:
    """(lsn, seq, all fields) of a record's one header ``cdc``."""
    fields = dict(item.split("=", 1) for item in header.decode().split(";"))
    return LSN.parse(fields["lsn"]), int(fields["seq"]), fields


def topic_name(name: str, table: str) -> str:
    """The topic of ``schema.table`` in the database called ``name``."""
    escaped = (_PLAIN.sub(lambda byte: b"-%02X" % byte[0][0], part.encode()) for part in parts(table))
    return ".".join((name, *(part.decode() for part in escaped)))


def read_topics(bootstrap: str, topics: Iterable[str]) -> dict[str, TopicCopy]:
    """Read topics with ``read_committed`` from the beginning to their end at the time of the call.

    Memory grows with the records read.

    Raises:
        TopicUnavailable: the end was not reached in time, or a broker does not know a topic yet.
    """
    copies = {topic: TopicCopy() for topic in topics}
    missing = _end_offsets(bootstrap, list(copies))
    consumer = open_consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in missing])
        deadline = time.monotonic() + _TIMEOUT_S
        while missing:
            if time.monotonic() > deadline:
                raise TopicUnavailable(
                    f"the end of {sorted(missing)} was not reached in {_TIMEOUT_S:g} s",
                    remedy=BROKERS_AWAY,
                )
            for read in poll(consumer):
                if isinstance(read, StoredRecord):
                    copies[read.topic].add(read)
                    deadline = time.monotonic() + _TIMEOUT_S
                elif read.offset >= missing.get(read.partition, 0):
                    missing.pop(read.partition, None)
    finally:
        consumer.close()
    return copies


class EndSeen(NamedTuple):
    """The reader stood at the end of a partition: nothing committed lies before ``offset`` that it has not read."""

    partition: Partition
    offset: int


def open_consumer(bootstrap: str) -> Consumer:
    """A ``read_committed`` consumer that also says when it stands at the end of a partition."""
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "cdc-proof",  # required by the client; nothing is ever committed to it
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,  # how long the brokers take to say that a partition is at its end
    }
    return Consumer(options)


def poll(consumer: Consumer, max_records: int = 1000, timeout_s: float = 0.1) -> Iterator[StoredRecord | EndSeen]:
    """What comes next, up to ``max_records``; nothing after ``timeout_s``.

    Raises:
        TopicUnavailable: the client reports an error.
    """
    # With a timeout, consume() waits until all of max_records are there; so wait for one, then take what is there.
    messages = consumer.consume(1, timeout_s)
    if messages:
        messages += consumer.consume(max_records - 1, 0)
    for message in messages:
        error = message.error()
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        if error is None:
            headers: dict[str, Any] = dict(message.headers() or ())
            yield StoredRecord(topic, partition, offset, message.key(), message.value(), headers.get("cdc", b""))
        elif error.code() == KafkaError._PARTITION_EOF:
            yield EndSeen((topic, partition), offset)
        else:
            raise TopicUnavailable(
                f"reading {topic}[{partition}]: {error}",
                remedy=BROKERS_AWAY,
            )


def _end_offsets(bootstrap: str, topics: list[str]) -> dict[Partition, int]:
    """High watermarks, ``read_uncommitted``: markers of a decided Kafka transaction may still be on their way."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics(timeout=_TIMEOUT_S).topics
    absent = [topic for topic in topics if topic not in metadata]
    if absent:
        raise TopicUnavailable(f"no topic {', '.join(absent)}", remedy="start the bridge (cdc run), which makes it")
    partitions = [TopicPartition(topic, number) for topic in topics for number in metadata[topic].partitions]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    futures = admin.list_offsets(
        dict.fromkeys(partitions, latest),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=_TIMEOUT_S,
    )
    try:
        return {(one.topic, one.partition): future.result().offset for one, future in futures.items()}
    except KafkaException as error:  # of a topic that was just made a broker may not know yet that it has it
        raise TopicUnavailable(
            f"no end offsets of {', '.join(topics)}: {error.args[0].str()}",
            remedy=BROKERS_AWAY,
        ) from error
