"""A record as ``cdc get`` and ``cdc watch`` show it, whether the bridge or another program wrote it. Pure."""

from __future__ import annotations

import base64
from typing import NamedTuple

import msgspec

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.header import parse_header
from cdc.contract.ports import StoredRecord


class Shown(NamedTuple):
    """A record to be shown.

    Attributes:
        topic, partition, offset: where it is.
        key: JSON text.
        row: JSON text; None when the record deletes the key.
        op: what the source did (``c``, ``u``, ``d``, ``r``, ``t``), from the header; empty without a header.
        lsn: the commit's LSN; None without a header.
        ts: the commit's time, in µs since 1970; None without a header.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    row: bytes | None
    op: str
    lsn: LSN | None
    ts: int | None


def of_table(record: StoredRecord, opener: ValueOpener, keys: TopicKeys) -> Shown:
    """Reads a record that the bridge wrote.

    Raises:
        DecodeError: another program wrote the record, or its value is damaged.
    """
    try:
        key = _in_json(record.key or b"", keys)
        header = parse_header(record.header)
        value = _opened(record, opener)
        if not _is_object(key) or not (value is None or _is_object(value)):
            raise DecodeError(
                "key and value must be JSON objects in UTF-8",
                remedy="find out who else writes to this topic; cdc reconcile shows what it damaged",
            )
    except DecodeError as error:
        raise DecodeError(
            f"the record at offset {record.offset} of partition {record.partition} of topic {record.topic!r} is not "
            f"the bridge's: {error.message}",
            remedy="find out who else writes to this topic; cdc reconcile shows what it damaged",
        ) from error
    place = (record.topic, record.partition, record.offset)
    return Shown(*place, _one_line(key), None if value is None else _one_line(value), header.op, header.lsn, header.ts)


def _in_json(key: bytes, keys: TopicKeys) -> bytes:
    try:
        return keys.json(key)
    except ValueError as error:
        raise DecodeError(
            str(error), remedy="find out who else writes to this topic; cdc backfill --sweep deletes such keys"
        ) from error


def _opened(record: StoredRecord, opener: ValueOpener) -> bytes | None:
    try:
        return None if record.value is None else opener.row(record.value, record.header)
    except ValueError as error:
        raise DecodeError(
            str(error), remedy="find out who else writes to this topic; cdc backfill publishes its rows again"
        ) from error


def of_topic(record: StoredRecord) -> Shown:
    """Reads a record of any program: JSON stays as it is, other text becomes a JSON string, other bytes base64."""
    value = None if record.value is None else as_json(record.value)
    key = b"null" if record.key is None else as_json(record.key)
    return Shown(record.topic, record.partition, record.offset, key, value, "", None, None)


def as_json(raw: bytes) -> bytes:
    """Returns JSON, on one line, for any bytes."""
    try:
        msgspec.json.decode(raw)
        raw.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            return msgspec.json.encode(raw.decode())
        except UnicodeDecodeError:
            return b'"%b"' % base64.b64encode(raw)
    return _one_line(raw)


def _is_object(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return text.startswith(b"{") and text.endswith(b"}")


def _one_line(text: bytes) -> bytes:
    """Replaces line ends by blanks. In JSON text, line ends can only stand between values."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")
