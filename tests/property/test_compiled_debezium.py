"""Rows and envelopes of Debezium's written and read in C equal those of Python byte for byte, or are declined."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Final, Literal, TypeVar

import pytest

from cdc.base import compiled
from cdc.base.lsn import LSN
from cdc.contract.change import UNCHANGED_TOAST, Column, Relation, ReplicaIdentity, Row, UnchangedToast
from cdc.contract.debezium_modes import mark_of
from cdc.contract.formats.debezium.avro_envelope import AvroEnvelopeReader
from cdc.contract.formats.debezium.avro_rows import DebeziumAvroWriter, row_reader
from cdc.contract.formats.debezium.avro_schema import envelope_schema
from cdc.contract.formats.debezium.envelope import EnvelopeMaker, EnvelopeReader
from cdc.contract.formats.debezium.rows import DebeziumReader, DebeziumWriter
from cdc.contract.formats.format import NOT_ENCODABLE, RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.header import HeaderStamp, newer, with_null_documents
from cdc.contract.record import DebeziumModes, EventParts, Ready, TableSchema, WrittenSchema
from cdc.contract.schema import table_schema
from tests.support.random_rows import damaged, text_of
from tests.support.soak import times

SEED: Final = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_T = TypeVar("_T")
_MODULES: Final = ("cdc.contract.formats.debezium._envelopes", "cdc.contract.formats.debezium._rows")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(any(compiled.twin(each) is None for each in _MODULES), reason="nothing was compiled"),
]

_TS: Final = 1_795_823_636_937_943
_TIMES: Final = (
    "00:00:00", "23:59:59.999999", "12:34:56.7", "12:34:56.789", "12:34:56.70", "24:00:00", "12:34",
    "12:34:60", "12:34:56.",
)  # fmt: skip
_DAYS: Final = (
    "1970-01-01", "1969-12-31", "2000-02-29", "1900-02-29", "0001-01-01", "9999-12-31", "0000-01-01", "10000-01-01",
    "infinity", "2026-04-31", "0044-03-15 BC",
)  # fmt: skip
_LITERALS: Final = (
    b"{}", b"{a,bc}", b"{,}", b"{a,}", b"{a,,b}", b"{a b}", b"{NULL}", b"{nuLL}", b"{a,NULL,b}", b'{"a b"}', b"{a}}",
    b"{", b"{{a},{b}}", b"[0:1]={a,b}", b"{a\\,b}", b"{ }", "{é}".encode(), b"{\xe9}", b"a", b"{NUL}",
)  # fmt: skip


def _day(rng: random.Random) -> str:
    return rng.choice((*_DAYS, f"{rng.randint(1, 9999):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"))


def _decimal(scale: int) -> Callable[[random.Random], bytes]:
    def make(rng: random.Random) -> bytes:
        digits = str(rng.randrange(10 ** rng.randint(1, 22))).zfill(scale + 1)
        text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return rng.choice(("", "-")).encode() + rng.choice((text, text, text, "NaN", "0.00", "00.5")).encode()

    return make


def _moment(rng: random.Random) -> bytes:
    return f"{_day(rng)} {rng.choice(_TIMES)}".encode()


def _literal(*elements: bytes) -> Callable[[random.Random], bytes]:
    return lambda rng: (
        b"{" + b",".join(rng.choices(elements, k=rng.randrange(4))) + b"}"
        if rng.random() < 0.6
        else rng.choice(_LITERALS)
    )


_TYPES: Final[dict[tuple[str, int], Callable[[random.Random], bytes]]] = {
    **{("pg_catalog.numeric", ((20 << 16 | scale) + 4)): _decimal(scale) for scale in (0, 2, 6, 17, 18)},
    ("pg_catalog.numeric", -1): _decimal(3),
    ("pg_catalog.date", -1): lambda rng: _day(rng).encode(),
    **{("pg_catalog.time", places): lambda rng: rng.choice(_TIMES).encode() for places in (-1, 3)},
    **{("pg_catalog.timestamp", places): _moment for places in (-1, 0, 3)},
    **{
        ("pg_catalog.timestamptz", places): lambda rng: _moment(rng) + rng.choice((b"+00", b"+00", b"+00", b"-05", b""))
        for places in (-1, 0, 2, 6)
    },
    ("pg_catalog.bytea", -1): lambda rng: b"\\x" + rng.randbytes(rng.randrange(6)).hex().encode(),
    ("pg_catalog._int8", -1): _literal(b"0", b"-1", b"9223372036854775807", b"NULL"),
    ("pg_catalog._text", -1): _literal(b"a", b"b\tc", "é".encode(), b"NULL", b'"x y"', b"nullx"),
    ("pg_catalog._uuid", -1): _literal(b"00000000-0000-0000-0000-000000000001", b"NULL"),
    ("public._mood", -1): _literal(b"ok", b"NULL"),
    ("pg_catalog._float8", -1): _literal(b"1.5", b"NaN", b"1e+20", b"NULL"),
    ("pg_catalog.interval", -1): lambda rng: rng.choice((b"1 day", b"-04:05:06.7", b"x")),
    **{
        (f"pg_catalog.{name}", -1): text_of(name)
        for name in ("bool", "int4", "int8", "float8", "uuid", "text", "jsonb")
    },
}  # fmt: skip
_KEYS: Final = (
    ("pg_catalog.int4", -1), ("pg_catalog.int8", -1), ("pg_catalog.text", -1), ("pg_catalog.uuid", -1),
    ("pg_catalog.date", -1), ("pg_catalog.bool", -1), ("pg_catalog.numeric", (20 << 16 | 2) + 4),
)  # fmt: skip


class Table:
    """A table with random columns, in random modes: its definitions in JSON and Avro, and what writes its rows."""

    def __init__(self, rng: random.Random) -> None:
        keys, others = rng.choice((1, 1, 2)), rng.choice((0, 1, 2, 5, 9))
        types = [*rng.choices(_KEYS, k=keys), *rng.choices([*_TYPES], k=others)]
        rng.shuffle(types)
        names = [f"c{i}" + rng.choice(("", "", "", "é", '"', "%s", "\\", " ")) for i in range(len(types))]
        self.columns = [Column(name, 0, modifier, of, False) for name, (of, modifier) in zip(names, types, strict=True)]
        places = rng.sample([i for i, each in enumerate(types) if each in _KEYS], keys)
        self.key = [self.columns[place] for place in places]
        self._places = places
        self.modes = DebeziumModes(
            rng.choice(("precise", "precise", "string")),
            rng.choice(("adaptive", "adaptive_time_microseconds", "isostring", "microseconds", "nanoseconds")),
            rng.choice(("bytes", "base64", "base64-url-safe", "hex")),
            schemas=rng.random() < 0.2,
        )
        relation = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, tuple(self.columns))
        self.in_json = replace(
            table_schema(relation, [column.name for column in self.key], "shop.public.t"), envelope=self.modes
        )
        text = envelope_schema(self.in_json, self.modes)
        self.in_avro = replace(self.in_json, format="avro", written=(WrittenSchema(5, text, "avro"),))
        self.avro_writer = DebeziumAvroWriter(self.columns, self.modes, text)
        self.json_writer = DebeziumWriter(self.columns, self.modes)

    def row(self, rng: random.Random, damage: float = 0.02) -> Row:
        return tuple([self._cell(rng, place, damage) for place in range(len(self.columns))])

    def _cell(
        self, rng: random.Random, place: int, damage: float
    ) -> bytes | Literal[UnchangedToast.UNCHANGED_TOAST] | None:
        column = self.columns[place]
        text = _TYPES[column.type_name, column.type_modifier](rng)
        if rng.random() < damage:
            return rng.choice((UNCHANGED_TOAST, damaged(rng, text)))
        return None if place not in self._places and rng.random() < 0.1 else text

    def encoded(self, rng: random.Random, writer: RowWriter) -> tuple[Row, bytes]:
        """A row that can be written, and its bytes."""
        row = tuple([self._writable(rng, writer, place) for place in range(len(self.columns))])
        return row, writer.encode(row)

    def _writable(self, rng: random.Random, writer: RowWriter, place: int) -> bytes | None:
        while True:
            cell = self._cell(rng, place, 0)
            if cell is None or (isinstance(cell, bytes) and not writer.problem(place, cell)):
                return cell

    def record_key(self, row: Row) -> bytes | None:
        return _written(JSON.writer(self.key), tuple(row[place] for place in self._places))


def test_rows_are_written_alike_or_declined() -> None:
    rng = random.Random(SEED)
    taken = declined = 0
    for _ in range(times(300, soak=5_000)):
        table = Table(rng)
        for writer in (table.json_writer, table.avro_writer):
            in_c = writer.compiled
            for _ in range(10):
                row = table.row(rng)
                found = in_c.encode(row)
                if found is None:
                    declined += 1
                else:
                    taken += 1
                    assert (found, ()) == (_written(writer, row), writer.null_documents(row)), (
                        SEED,
                        table.columns,
                        row,
                    )
    assert taken > declined / 4, "declining everything would be right, too"


def test_rows_are_read_alike_or_declined() -> None:
    rng = random.Random(SEED)
    taken = declined = 0
    for _ in range(times(300, soak=5_000)):
        table = Table(rng)
        reader, in_avro = DebeziumReader(table.in_json, table.modes), row_reader(table.in_json, table.modes)
        in_c = reader.compiled
        for _ in range(5):
            _, value = table.encoded(rng, table.json_writer)
            for each in (value, *(damaged(rng, value) for _ in range(5))):
                found = in_c.json(each)
                assert found is None or found == _read(reader.json, each), (SEED, table.columns, table.modes, each)
                taken, declined = taken + (found is not None), declined + (found is None)
            _, value = table.encoded(rng, table.avro_writer)
            for each in (value, *(damaged(rng, value) for _ in range(5))):
                told = in_avro.in_c(each, 0)
                assert told is None or told == _read(lambda raw: in_avro.in_python(raw, 0), each), (
                    SEED,
                    table.columns,
                    table.modes,
                    each,
                )
    assert taken > declined / 4, "declining everything would be right, too"


def test_envelopes_are_made_alike() -> None:
    rng = random.Random(SEED)
    for _ in range(times(200, soak=3_000)):
        table, now = Table(rng), rng.choice((0, 999_999, 1_795_823_637_293_877_963, 1 << 62))
        for definition, writer in ((table.in_json, table.json_writer), (table.in_avro, table.avro_writer)):
            made = [EnvelopeMaker("shop", 'so"urce', "0.1", count(now).__next__) for _ in range(2)]
            for maker in made:
                maker.learn(definition, table.columns, table.modes)
            ready = [*_ready(rng, table, definition, writer)]
            expected = [
                (topic, key, each, marked, None)
                for topic, key, value, header, old in ready
                for each, marked in made[1].values(key, value, header, None if isinstance(old, EventParts) else old)
            ]
            place, found = 0, []
            while place < len(ready):  # in several batches
                batch = ready[place : place + rng.randint(1, 10)]
                found += made[0].records(batch)
                place += len(batch)
            assert found == expected, (SEED, table.columns, table.modes)


def test_envelopes_are_opened_alike_or_declined() -> None:
    rng = random.Random(SEED)
    taken = whole = 0
    for _ in range(times(200, soak=3_000)):
        table = Table(rng)
        mark, text = mark_of(table.modes).encode(), table.in_avro.written[-1].text
        for definition, writer, reader in (
            (table.in_json, table.json_writer, EnvelopeReader(table.in_json, mark)),
            (table.in_avro, table.avro_writer, AvroEnvelopeReader(table.in_avro, table.modes, text)),
        ):
            maker = EnvelopeMaker("shop", "source", "0.1", lambda: 1_795_823_637_293_877_963)
            maker.learn(definition, table.columns, table.modes)
            for _, _, value, header, _ in maker.records([*_ready(rng, table, definition, writer)]):
                if value is None or b";envelope=" not in header:
                    continue
                expected = _read(reader.in_python, value)
                for each in (value, *(damaged(rng, value) for _ in range(5))):
                    found = reader.in_c(each)
                    assert found is None or found == _read(reader.in_python, each), (SEED, table.columns, each)
                whole += expected is not None
                taken += reader.in_c(value) is not None
    assert taken > whole / 2 > 0, "declining everything would be right, too"


def _ready(rng: random.Random, table: Table, definition: TableSchema, writer: RowWriter) -> Iterator[Ready]:
    """Records as the bridge has them ready, some of them odd."""
    for seq in range(1, rng.randint(2, 20)):
        row, value = table.encoded(rng, writer)
        key = table.record_key(row) or b"{}"
        lsn = LSN(rng.choice((1, 22905672, (1 << 63) - 1, (1 << 64) - 1)))
        xid, ts, snap = rng.choice(((770, _TS, None), ((5 << 32) + 7, 1, None), (None, _TS, "1:1:")))
        stamp = HeaderStamp(lsn, xid, ts, snap)
        old = rng.choice((None, None, value))
        op = rng.choice("cuudrt")
        header = stamp.header(op, seq, rng.choice((definition.fingerprint, definition.fingerprint, "f" * 16)))
        header = rng.choice((header, header, newer(header), with_null_documents(header, (0,))))
        if rng.random() < 0.1:  # a changed key is two records at one position
            header = stamp.header("u", seq, definition.fingerprint)
            yield "t", key, None, header, old
            yield "t", key, value, header, old
        else:
            key = key if rng.random() < 0.8 else damaged(rng, key)
            yield "t", key, None if op == "d" or rng.random() < 0.2 else value, header, old


def _written(writer: RowWriter, row: Row) -> bytes | None:
    try:
        return writer.encode(row)
    except NOT_ENCODABLE:
        return None


def _read(read: Callable[[bytes], _T], value: bytes) -> _T | None:
    try:
        return read(value)
    except ValueError:
        return None
