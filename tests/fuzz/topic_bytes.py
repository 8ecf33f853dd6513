"""What readers find in topics: values, keys and headers of records, and the bridge's own bookkeeping."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import pytest

from cdc.base.compiled import twin
from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN, ZERO
from cdc.contract import backfill, history, known_topic, membership, progress, repair, schema
from cdc.contract.formats import json_rows
from cdc.contract.formats.format import NOT_ENCODABLE, ReadColumn
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.written_key import compared_as_text, equal_keys, has_values, key_bytes, written_values
from cdc.contract.header import Header, header_position, parse_header
from cdc.contract.pgtypes import sql_type
from cdc.contract.ports import StoredRecord
from cdc.contract.record import (
    BackfillProgress,
    BackfillRequest,
    Lead,
    LeafProgress,
    Position,
    Progress,
    RepairKey,
    RepairOutcome,
    RepairRequest,
    SchemaColumn,
    SourceIdentity,
    TableSchema,
)
from cdc.kafka.replay.cut import climb
from cdc.sink.postgres.rows import RowForm
from cdc.sink.rejections import RecordRejected
from cdc.state.keys import KeyFormat
from cdc.topics.batches import parse_batches
from cdc.views.table.facts import KeyColumn
from cdc.views.table.forms import table_form, topic_form
from cdc.views.table.indexes import Indexes
from cdc.views.table.records import changes
from tests.fuzz.pieces import LAYOUTS, SEEDS, joined, layout, split
from tests.golden.files import vectors
from tests.support import random_rows

_HEADER: Final = b"v=1;op=u;lsn=0/1925728;seq=17;xid=734;ts=1795190486566123;schema=ab"


@lru_cache(maxsize=LAYOUTS)
def _row_forms(number: int) -> tuple[Any, RowForm]:
    columns = [ReadColumn(each.name, sql_type(each), ";" if number & 1 else ",") for each in layout(number)]
    reader = JSON.reader(columns)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_rows, "twin", lambda _: None)
        return reader, RowForm(columns, (), {"ab": [each.name for each in layout(number)]})


def values(data: bytes) -> None:
    """Values of records, which become lines of COPY in a replica."""
    choice, parts = split(data)
    reader, in_python = _row_forms(choice % LAYOUTS)
    header = parts[1] if len(parts) > 1 else b""
    for are_keys in (False, True):
        record = StoredRecord("t", 0, 0, parts[0], parts[0], header)
        try:
            expected: bytes | None = b"".join(in_python.blocks([record], of_key=are_keys))
        except RecordRejected:
            expected = None
        text, left = reader.lines([parts[0]], are_keys=are_keys)
        assert list(left) == [0] or text == expected or b"json_null" in header


def values_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        rng = random.Random(number)
        row = random_rows.row(rng, layout(number), damage=0.0)
        with suppress(*NOT_ENCODABLE):
            value = JSON.writer(layout(number)).encode(row)
            yield joined(number, [value, _HEADER + b";json_null=0"][: 1 + number % 2])


def record_keys(data: bytes) -> None:
    """Keys of records, and keys as people write them."""
    choice, (key, *others) = split(data)
    columns = layout(choice)
    types = [(each.name, sql_type(each)) for each in columns]
    texts = JSON.key_texts(columns, key)
    members = JSON.members(key)
    assert texts is None or (len(texts) == len(columns) and members == frozenset(each.name for each in columns))
    canonical = KeyFormat([each.name for each in columns]).canonical(key)
    assert canonical is None or KeyFormat([each.name for each in columns]).canonical(canonical) == canonical
    try:
        written = key_bytes(written_values(key.decode()), types)
    except (ValueError, KeyError):
        return
    again = key_bytes(written_values(written.decode()), types)
    assert again == written or compared_as_text(types), "a key has two canonical spellings"
    assert has_values(written, types)(written)
    if (are_equal := equal_keys(written, types)) is not None:
        assert are_equal(written)
        for other in others:
            are_equal(other)


def key_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        rng = random.Random(number)
        row = random_rows.row(rng, layout(number), damage=0.0)
        with suppress(*NOT_ENCODABLE):
            yield joined(number, [JSON.writer(layout(number)).encode(row)])


def headers(data: bytes) -> None:
    """The header of each record."""
    _, parts = split(data)
    records = [StoredRecord("t", 0, offset, b"k", b"v", part) for offset, part in enumerate(parts)]
    compiled = twin("cdc.kafka.replay._cut")
    assert compiled is None or compiled.climb(records, ZERO) == climb(records, ZERO)
    for part in parts:
        found, position = _read(parse_header, part), _read(header_position, part)
        if isinstance(found, Header):
            assert position is None or position == (found.lsn, found.seq)


def _read(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except DecodeError:
        return None


def header_seeds() -> Iterator[bytes]:
    written = [vector["header"].encode() for vector in vectors("headers")]
    yield joined(0, written)
    yield from (joined(0, [each]) for each in written)


_BOOKKEEPING: Final[tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...]] = (
    (progress.parse_progress, progress.progress_value),
    (backfill.parse_backfill, backfill.backfill_value),
    (backfill.parse_request, backfill.request_value),
    (repair.parse_repair_request, repair.repair_request_value),
    (repair.parse_repair_outcome, repair.repair_outcome_value),
    (known_topic.parse_known_topic, known_topic.known_topic_value),
    (membership.parse_membership, membership.membership_value),
    (schema.parse_schema, schema.schema_value),
)


def bookkeeping(data: bytes) -> None:
    """Values and keys of the bridge's own topics."""
    choice, (value, *_) = split(data)
    parse, write = _BOOKKEEPING[choice % len(_BOOKKEEPING)]
    if (found := _read(parse, value)) is not None:
        assert parse(write(found)) == found
    _read(known_topic.named_topic, value)
    _read(membership.member_table, value)
    _read(history.parse_history, value)


def bookkeeping_seeds() -> Iterator[bytes]:
    leaf = LeafProgress("public", "t", 16_385, 9, ((0, 3), (5, 7)))
    request = "6a1e"
    written = (
        Progress(LSN(7), Position(LSN(9), 3), 5, SourceIdentity("7", 1, 5), (4, 6), Lead(LSN(9), True)),
        BackfillProgress(
            "public.t", "shop.public.t", request, "running", "request", True, "id > 3", 50, True, (7, 9), (leaf,),
            1_000, 30, 0, 40, LSN(9), 1, 2, "waits",
        ),
        BackfillRequest(request, "start", ("public.t",), "id > 3", 50, True),
        RepairRequest(request, 2, "public.t", (RepairKey(b'{"id":1}'), RepairKey(b"\xff", 3))),
        RepairOutcome("public.t", "shop.public.t", request, 2, 1, 1, 0, 41, LSN(9), "no such table", "name another"),
        known_topic.KnownTopic("mfGA7w", (0, 5), (7, 9)),
        membership.Membership(16_400, "734", 10, 16_385, ("table 16385", "schema 2200")),
        TableSchema("ab", "public", "t", "shop.public.t", ("id",), (
            SchemaColumn("id", "int4", 1, 23), SchemaColumn("m", '"public"."mood"', 2, 16_500, ((16_501, "1f"),)),
        ), 16_385),
    )  # fmt: skip
    for choice, (each, (_, write)) in enumerate(zip(written, _BOOKKEEPING, strict=True)):
        yield joined(choice, [write(each)])
    yield joined(0, [known_topic.known_topic_key("shop.public.t")])
    yield joined(0, [membership.membership_key("public.t")])
    yield joined(
        0,
        [
            history.HistoryEncoder({}, lambda value, _: value).value(
                b'{"id":1}', _HEADER.replace(b"=ab", b"=" + b"a" * 16), b"{}"
            )
        ],
    )


def batch_headers(data: bytes) -> None:
    """Record batches as they lie on a broker's disk."""
    place = 0
    for batch in parse_batches(data):
        assert batch.size > 0
        place += batch.size
    assert place <= len(data)


def batch_seeds() -> Iterator[bytes]:
    batch = bytes.fromhex("000000000000000700000031000000000200000000")
    yield batch + bytes(40)
    yield (batch + bytes(40)) * 3


# What a view makes of records.


@lru_cache(maxsize=LAYOUTS)
def _table(number: int) -> tuple[Any, Indexes]:
    columns = [(each.name, sql_type(each)) for each in layout(number)]
    names = [name for name, _ in columns]
    form = table_form([KeyColumn(*each) for each in columns[:2]], [("former",)])
    return form, Indexes([names[:1], names[1:3], names[-1:]], dict(columns))


def view_records(data: bytes) -> None:
    """Records of a table or of another program's topic. Whatever they hold, the feed goes on."""
    choice, parts = split(data)
    form, indexes = _table(choice)
    kinds = topic_form(("string", "json", "bytes")[choice % 3], ("json", "string", "bytes")[choice // 3 % 3])
    each = [*parts, b""]
    records = [
        StoredRecord("t", place % 2, place, each[place], each[place + 1] or None, _HEADER)
        for place in range(0, len(each) - 1, 2)
    ]
    found = changes("t", records, form, indexes)
    assert len(found) + len(found.no_rows) <= len(records)
    stamped = [record._replace(header=b"1795190486566") for record in records]
    assert len(changes("t", stamped, kinds, Indexes([], {}))) <= len(records)


def view_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        rng = random.Random(number)
        columns, parts = layout(number), []
        for _ in range(3):
            with suppress(*NOT_ENCODABLE):
                row = random_rows.row(rng, columns, damage=0.0)
                parts += [JSON.writer(columns[:2]).encode(row[:2]), JSON.writer(columns).encode(row)]
        yield joined(number, parts)
