"""Makes the headers of CloudEvents for the records of tables, in the binary content mode of its binding to Kafka. Pure.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md. Keys, values and the
header ``cdc`` stay as they are, and ``cdc`` comes first. An event without data is a record without a value, which is
what a tombstone is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

from cdc.contract.header import envelope_of, stamp_of
from cdc.contract.record import FormatName

Headers: TypeAlias = list[tuple[str, bytes]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Final = {
    b"c": b"cdc.insert",
    b"u": b"cdc.update",
    b"d": b"cdc.delete",
    b"r": b"cdc.backfill",
    b"t": b"cdc.truncate",
}
_CONTENT_TYPES: Final[dict[FormatName, bytes]] = {
    "json": b"application/json",
    "avro": b"application/avro",
    "protobuf": b"application/protobuf",
    "json-schema": b"application/json",
}
_OP: Final = b',"op":"'
_OP_IN_AVRO: Final = re.compile(rb"\x02([cdur])(?:\x02[\x80-\xff]*[\x00-\x7f]){3}\Z", re.DOTALL)
"""The end of an envelope in Avro: its operation, and three numbers, each in the second branch of a union. A byte above
0x7F says that its number goes on. So there is only one way to read the end."""
_LONGEST_END: Final = 2 + 3 * (1 + 10)
_CONTROL: Final = re.compile("[\x7f-\x9f]")
"""Control characters that JSON does not escape, and that an attribute of CloudEvents must not contain."""


class CloudEvents:
    """Makes the headers of records.

    Args:
        name: the bridge's name.
        format_of: returns the format of a table's topic; None for any other topic.
    """

    def __init__(self, name: str, format_of: Callable[[str], FormatName | None]) -> None:
        self._name = name
        self._format_of = format_of

    def headers(self, topic: str, key: bytes, value: bytes | None, header: bytes) -> Headers | None:
        """Returns the headers to add to a record; None if the topic is not a table's.

        The same change has the same id whenever it is published. Several records of one change differ in their key, or
        in that only one of them has a value.
        """
        form = self._format_of(topic)
        if form is None:
            return None
        op, lsn, seq, _, ts, _ = stamp_of(header)
        digest = blake2b(key, digest_size=8).hexdigest().encode()
        made = [
            ("ce_specversion", b"1.0"),
            (
                "ce_id",
                b"%b-%b-%b%b-%b" % (lsn.replace(b"/", b"-"), seq, op, b"" if value is not None else b"0", digest),
            ),
            ("ce_source", f"/{self._name}/{topic}".encode()),
            ("ce_type", _TYPES[op if op == b"t" else _op_of(op, value, header)]),
            ("ce_time", _time(ts)),
        ]
        if key.startswith(b"{"):  # a key in Avro is not text, which a subject has to be; an event need not have one
            made.append(("ce_subject", _subject(key)))
        if value is not None:
            made.append(("content-type", _CONTENT_TYPES[form]))
        return made

    def sender(self, produce: Callable[..., None]) -> Callable[..., None]:
        """Returns a function like ``Producer.produce`` that adds the headers of CloudEvents to those of the record."""

        def send(
            topic: str,
            value: bytes | None,
            key: bytes,
            partition: int,
            delivered: object,
            partitioner: object,
            timestamp: int,
            headers: Headers | None,
        ) -> None:
            if headers is not None and (more := self.headers(topic, key, value, headers[0][1])) is not None:
                headers = headers + more
            produce(topic, value, key, partition, delivered, partitioner, timestamp, headers)

        return send


def _op_of(op: bytes, value: bytes | None, header: bytes) -> bytes:
    """Returns what happened to the key, which the header of a changed key does not say, but an envelope does."""
    if value is None:
        return b"d"
    if envelope_of(header) is None:
        return op
    if value.startswith(b"\0"):
        match = _OP_IN_AVRO.search(value, max(0, len(value) - _LONGEST_END))
        assert match is not None
        return match[1]
    place = value.rindex(_OP) + len(_OP)  # only numbers follow it
    return value[place : place + 1]


def _subject(key: bytes) -> bytes:
    if key.isascii() and b"\x7f" not in key:
        return key
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", key.decode()).encode()


@lru_cache(maxsize=1024)
def _time(ts: bytes) -> bytes:
    """Returns the time in RFC 3339. The cache helps, because records of one transaction follow one another."""
    moment = _EPOCH + timedelta(microseconds=int(ts))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
