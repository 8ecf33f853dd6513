"""How the records of a topic are read: a topic that the bridge writes, or one of another program. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import msgspec
import orjson

from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.ports import StoredRecord
from cdc.views.table.facts import KeyColumn, KeyKind, ValueKind
from cdc.views.table.keys import KeyForm, order_of, raw_order
from cdc.views.table.records import RecordForm

_EVIDENCE: Final = re.compile(
    rb"v=1;op=[cudrt];lsn=([0-9A-F]{1,8}/[0-9A-F]{1,8});seq=[0-9]{1,19};[^;]*;ts=(-?[0-9]{1,19})(?:;|$)"
)
_decode_object: Final = msgspec.json.Decoder(msgspec.defstruct("AnyObject", [], gc=False)).decode


def table_form(
    key: Sequence[KeyColumn],
    former: Collection[tuple[str, ...]] = (),
    opener: ValueOpener | None = None,
    keys: TopicKeys | None = None,
) -> RecordForm:
    """The form of a topic that the bridge writes.

    Args:
        key: the key columns of its table.
        former: keys that the table had earlier.
        opener: makes JSON of values in another format; None if there are none.
        keys: makes JSON of keys in another format; None if there are none.
    """
    names = tuple(column.name for column in key)
    form = KeyForm([(column.name, column.sql_type) for column in key])
    floats = form.floats

    def read_key(text: bytes) -> tuple[bytes, bytes]:
        found = form.read(text)
        if type(found) is not dict or tuple(found) != names:
            raise ValueError(f"its key is not a key of ({', '.join(names)})")
        return order_of([*found.values()], floats), text

    def is_former(text: bytes) -> bool:
        try:
            found = orjson.loads(text)
        except ValueError:
            return False
        return type(found) is dict and tuple(found) in former

    def opened(value: bytes, header: bytes) -> bytes | None:
        assert opener is not None
        found = opener.row(value, header)
        return None if found is None else json_object(found)

    read_value = _plain_object if opener is None else opened
    with_json_keys = None if keys is None else partial(_with_json_keys, keys)
    return RecordForm(read_key, read_value, evidence, is_former if former else _never, with_json_keys)


def _with_json_keys(keys: TopicKeys, records: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
    return [_with_json_key(keys, each) for each in records if each.key is None or not keys.is_former(each.key)]


def _with_json_key(keys: TopicKeys, record: StoredRecord) -> StoredRecord:
    if record.key is None:
        return record
    try:
        return record._replace(key=keys.json(record.key))
    except ValueError:
        return record  # no JSON either: whoever reads the key says so


def topic_form(key: KeyKind, value: ValueKind) -> RecordForm:
    """The form of another program's topic. The ``header`` of its records is their timestamp (``TopicReader``)."""
    read_value = _VALUES[value]
    return RecordForm(_KEYS[key], lambda text, _: read_value(text), _stamp, _never)


def evidence(header: bytes) -> tuple[bytes, int]:
    """The LSN as JSON text, and the commit time, from the header of a bridge's record."""
    match = _EVIDENCE.match(header)
    if match is None:
        raise ValueError(
            "it has no header `cdc` of version 1: another program wrote it" if not header else _bad(header)
        )
    lsn, ts = match.groups()
    return b'"%b"' % lsn, int(ts)


def json_object(text: bytes) -> bytes:
    """Checks that the text is a JSON object, and returns it unchanged."""
    try:
        _decode_object(text)
    except (msgspec.MsgspecError, RecursionError):
        if type(_slowly(text)) is not dict:
            raise ValueError("its value is not a JSON object") from None
    if not text.isascii():
        text.decode()  # msgspec skips strings without checking that they are UTF-8
    return text


def _plain_object(value: bytes, _: bytes) -> bytes:
    return json_object(value)


def _slowly(text: bytes) -> Any:
    """Parses what PostgreSQL's ``json`` type accepts and faster parsers refuse, lone surrogates for example."""
    try:
        return json.loads(text.decode(), parse_constant=_refuse_constant)
    except RecursionError:  # too deep to parse here, though PostgreSQL took it: the braces tell that it is an object
        return {} if text.startswith(b"{") and text.endswith(b"}") else None
    except ValueError as error:
        raise ValueError(f"its value is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _any_json(text: bytes) -> bytes:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        _slowly(text)
    return text


def _string(raw: bytes) -> bytes:
    try:
        return orjson.dumps(raw.decode())
    except UnicodeDecodeError:
        raise ValueError("its value is not UTF-8 text") from None


def _base64(raw: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(raw)


def _string_key(raw: bytes) -> tuple[bytes, bytes]:
    try:
        return raw_order(raw), orjson.dumps(raw.decode())
    except UnicodeDecodeError:
        raise ValueError("its key is not UTF-8 text") from None


def _json_key(raw: bytes) -> tuple[bytes, bytes]:
    """Two spellings of one value are two keys in Kafka, so they are two keys here.

    The usual spelling (members sorted, zero without a sign) gets the order of its value. Any other spelling gets that
    order with the record's own bytes appended.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"its key is not JSON: {error}") from None
    order = order_of([value])
    if orjson.dumps(value, option=orjson.OPT_SORT_KEYS) != raw or raw == b"-0.0":
        order += raw
    return order, raw


def _stamp(header: bytes) -> tuple[bytes, int]:
    return b"null", max(int(header or 0), 0) * 1_000


def _never(_: bytes) -> bool:
    return False


def _bad(header: bytes) -> str:
    return f"its header `cdc` is not of version 1: {header[:100].decode(errors='replace')}"


_KEYS: Final[dict[KeyKind, Callable[[bytes], tuple[bytes, bytes]]]] = {
    "string": _string_key,
    "json": _json_key,
    "bytes": lambda raw: (raw_order(raw), _base64(raw)),
}
_VALUES: Final[dict[ValueKind, Callable[[bytes], bytes]]] = {"json": _any_json, "string": _string, "bytes": _base64}
