"""The topic's side of the proof: reads all committed records, checks each of them, and folds them to rows."""

from __future__ import annotations

import json
import re
import struct
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.errors import TopicUnavailable
from cdc.base.lsn import LSN
from cdc.base.table_names import parts
from cdc.contract.ports import StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.lab.proof.server_text import FormError

_TIMEOUT_S: Final = 30.0
_ANSWER_S: Final = 30.0
_HEAD_OF_VALUE: Final = struct.Struct(">bI")
_PLAIN: Final = re.compile(rb"[^A-Za-z0-9_]")

Partition = tuple[str, int]

ReadFields: TypeAlias = Callable[[bytes], Mapping[str, bytes] | None]
"""Returns the JSON of each column of a value, by its name and in order; None if the value is the row as JSON."""


class LiveRow(NamedTuple):
    """The last record of a key: its value, and the numbers of columns whose ``null`` is a JSON document, not NULL."""

    value: bytes
    null_documents: frozenset[int] = frozenset()


@dataclass(slots=True)
class TopicCopy:
    """The rows that a reader of one topic ends up with, and what it found on the way.

    Attributes:
        live: rows by record key, for every key whose last record is not a tombstone.
        records: number of committed records; ``tombstones`` of them have a null value.
        backward: coordinates of records with a lower (lsn, seq) than an earlier record of the same partition.
        duplicates: coordinates of records that repeat the (key, lsn, seq) of another one. A tombstone followed by a row
            is not a duplicate, nor is one that empties a topic and is followed by a delete: that happens when a table
            was created again, at the position of the first change that shows it.
        toast_newer: number of records with ``toast=newer``.
    """

    live: dict[bytes, LiveRow] = field(default_factory=dict)
    records: int = 0
    tombstones: int = 0
    backward: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    toast_newer: int = 0
    _seen: set[tuple[bytes, int, int, str]] = field(default_factory=set)
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, record: StoredRecord) -> None:
        """Add a committed record; the records of a partition must come in their order."""
        key = record.key or b""
        lsn, seq, fields = read_header(record.header)
        coordinates = (
            f"{record.topic}[{record.partition}]@{record.offset} {key.decode(errors='backslashreplace')} {lsn}#{seq}"
        )
        if (lsn, seq) < self._last.get(record.partition, (0, 0)):
            self.backward.append(coordinates)
        is_deleted = record.value is None or ("envelope" in fields and operation(record.value) == "d")
        change = key, lsn, seq, "" if not is_deleted else fields["op"] if record.value is None else "envelope"
        if change in self._seen:
            self.duplicates.append(coordinates)
        self._last[record.partition] = lsn, seq
        self._seen.add(change)
        self.records += 1
        self.toast_newer += fields.get("toast") == "newer"
        self.tombstones += record.value is None
        if record.value is None or is_deleted:
            self.live.pop(key, None)
        else:
            nulls = fields.get("json_null")
            self.live[key] = LiveRow(record.value, frozenset(map(int, nulls.split(","))) if nulls else frozenset())

    def read(self, fields: ReadFields) -> None:
        """Make JSON of the rows, and of their keys, that are something else.

        Raises:
            FormError: a row is there under two keys.
        """
        live: dict[bytes, LiveRow] = {}
        for raw, row in self.live.items():
            of_key, found = fields(raw) if raw.startswith(b"\0") else None, fields(row.value)
            key = raw if of_key is None else _as_object(of_key)
            if key in live:
                raise FormError(f"two keys are {key.decode()}; one of them is {raw!r}")
            live[key] = row if found is None else row._replace(value=_as_object(found))
        self.live = live


def operation(envelope: bytes) -> str:
    """Returns what happened to the row, as an envelope of Debezium says it; after ``d``, its tombstone follows."""
    if envelope.startswith(b"\0"):
        return _operation_in_avro(envelope)
    found = msgspec.json.decode(envelope)
    return str(found.get("payload", found)["op"])


def _operation_in_avro(envelope: bytes) -> str:
    """Reads from the end: three times follow, each a number after the branch of its union."""
    place = len(envelope)
    for _ in range(3):
        place -= 1
        while envelope[place - 1] & 0x80:  # all bytes of a number but the last one have this bit
            place -= 1
        place -= 1
    return chr(envelope[place - 1])


def _as_object(fields: Mapping[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(msgspec.json.encode(name) + b":" + text for name, text in fields.items())


def read_header(header: bytes) -> tuple[LSN, int, dict[str, str]]:
    """Returns lsn, seq and all fields of the header ``cdc``."""
    fields = dict(item.split("=", 1) for item in header.decode().split(";"))
    return LSN.parse(fields["lsn"]), int(fields["seq"]), fields


def topic_name(name: str, table: str) -> str:
    """Returns the topic of ``schema.table`` of the bridge ``name``."""
    escaped = (_PLAIN.sub(lambda byte: b"-%02X" % byte[0][0], part.encode()) for part in parts(table))
    return ".".join((name, *(part.decode() for part in escaped)))


def read_topics(bootstrap: str, topics: Iterable[str], fields: ReadFields | None = None) -> dict[str, TopicCopy]:
    """Read topics with ``read_committed`` from the beginning to where they end at the time of the call.

    All records that were read are remembered, so memory grows with their number.

    Args:
        bootstrap: the cluster.
        topics: their names.
        fields: reads values that are not rows in JSON; None if all are.

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
    if fields is not None:
        for copy in copies.values():
            copy.read(fields)
    return copies


class EndSeen(NamedTuple):
    """The reader reached the end of a partition: it has read everything committed before ``offset``."""

    partition: Partition
    offset: int


def open_consumer(bootstrap: str) -> Consumer:
    """Returns a ``read_committed`` consumer that also reports when it reaches the end of a partition."""
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "cdc-proof",  # required by the client; nothing is ever committed to it
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,  # otherwise a broker waits up to 500 ms before it reports the end of a partition
    }
    return Consumer(options)


def poll(consumer: Consumer, max_records: int = 1000, timeout_s: float = 0.1) -> Iterator[StoredRecord | EndSeen]:
    """Yields what comes next, at most ``max_records``; yields nothing if nothing comes within ``timeout_s``.

    Raises:
        TopicUnavailable: the client reports an error.
    """
    # With a timeout, consume() waits until it has as many as it was asked for. So wait for one, then take the rest.
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
    """Returns the high watermarks, not the last stable offsets.

    A last stable offset may still lie before a Kafka transaction that is committed, until its markers are written.
    """
    admin = BrokerAdmin({"bootstrap.servers": bootstrap})
    metadata = admin.metadata(timeout_s=_TIMEOUT_S).topics
    absent = [topic for topic in topics if topic not in metadata]
    if absent:
        raise TopicUnavailable(f"no topic {', '.join(absent)}", remedy="start the bridge, which creates it: cdc run")
    partitions = [(topic, number) for topic in topics for number in metadata[topic].partitions]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    ends: dict[Partition, int] = {}
    for place, answer in admin.offsets(partitions, latest, timeout_s=_TIMEOUT_S).items():
        if isinstance(answer, KafkaError):  # a broker may not know yet that it has a partition of a new topic
            raise TopicUnavailable(f"no end offsets of {', '.join(topics)}: {answer.str()}", remedy=BROKERS_AWAY)
        ends[place] = answer
    return ends


def fields_by_registry(url: str) -> ReadFields:
    """Returns a function that reads values as a foreign reader does.

    It asks this registry for each schema once, and not the schemas topic.
    """

    @cache
    def reader(schema_id: int) -> ReadFields:
        return _reader_of(*registered_schema(url, schema_id))

    def fields(value: bytes) -> Mapping[str, bytes] | None:
        if value.startswith(b"{"):
            return None
        schema_id, row = with_schema_id(value)
        return reader(schema_id)(row)

    return fields


def with_schema_id(value: bytes) -> tuple[int, bytes]:
    """Returns the schema's id that a value begins with, and what follows it."""
    magic, schema_id = _HEAD_OF_VALUE.unpack_from(value)
    if magic != 0:
        raise FormError(f"the value begins with {value[:5]!r}, not with a schema's id")
    return schema_id, value[_HEAD_OF_VALUE.size :]


def registered_schema(url: str, schema_id: int) -> tuple[str, str]:
    """Returns the language and the text of the schema that a registry has under an id."""
    with urllib.request.urlopen(f"{url}/schemas/ids/{schema_id}", timeout=_ANSWER_S) as answer:
        found = json.loads(answer.read())
    return found.get("schemaType", "AVRO"), found["schema"]


def _reader_of(kind: str, schema: str) -> ReadFields:
    # Each format's library is imported only by who has values in it
    match kind:
        case "AVRO":
            from cdc.lab.proof import avro_fields

            return avro_fields.reader_of(schema)
        case "JSON":
            from cdc.lab.proof import json_schema_fields

            return json_schema_fields.reader_of(schema)
        case "PROTOBUF":
            from cdc.lab.proof import protobuf_fields

            return protobuf_fields.reader_of(schema)
    raise FormError(f"the schema is of a kind that nobody here reads: {kind}")
