"""Every format gives back what it was given: rows of all types, with a real server's texts; keys are JSON in each.

A new format gets a class of its own below, with nothing in it but the format.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple, Protocol

import pytest

from cdc.contract.change import UNCHANGED_TOAST, Column, Row
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.formats.format import NOT_ENCODABLE, NULL, RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.registered import registered
from cdc.contract.record import DebeziumModes, FormatName, TableSchema, WrittenSchema
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import (
    Catalogue,
    Type,
    damaged,
    definition_of,
    printed_catalogue,
    random_row,
    random_table,
)

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_ID: Final = 0x25FF0A00
_MODES: Final = DebeziumModes("string", "isostring", "base64")
_DEEP: Final = b"[" * 2000 + b"]" * 2000


class Sides(NamedTuple):
    """Who writes and who reads the rows of one table.

    Attributes:
        writer: of rows.
        sent: what becomes of a row that was written, and of its header, when it is sent.
        definition: with which readers open it.
    """

    writer: RowWriter
    sent: Callable[[bytes, bytes], tuple[bytes, bytes]]
    definition: TableSchema


class Format(Protocol):
    """A format of values."""

    def __call__(self, columns: Sequence[Column]) -> Sides:
        """Make both sides for a table with these columns."""


def in_json(columns: Sequence[Column]) -> Sides:
    return Sides(JSON.writer(columns), lambda value, header: (value, header), definition_of(columns))


def with_schema(name: FormatName) -> Format:
    """A format whose schemas are in a registry."""

    def sides(columns: Sequence[Column]) -> Sides:
        form, definition = registered(name), definition_of(columns)
        schema = form.schema(definition, "the-bridge", "text")
        written = replace(definition, format=name, written=(WrittenSchema(_ID, schema, name),))
        return Sides(form.writer(columns, schema, _ID), lambda value, header: (value, header), written)

    return sides


def enveloped(columns: Sequence[Column]) -> Sides:
    """Debezium's envelope, in the modes that hold most."""
    definition = replace(definition_of(columns), envelope=_MODES)
    return Sides(DebeziumWriter(columns, _MODES), _sent(definition, columns, _MODES), definition)


def enveloped_in_avro(modes: DebeziumModes) -> Format:
    """Debezium's envelope in Avro."""

    def sides(columns: Sequence[Column]) -> Sides:
        form, definition = registered("avro", modes), definition_of(columns)
        schema = form.schema(definition, "the-bridge", "refuse")
        written = (WrittenSchema(_ID, schema, "avro"),)
        definition = replace(definition, format="avro", envelope=modes, written=written)
        return Sides(form.writer(columns, schema, _ID), _sent(definition, columns, modes), definition)

    return sides


def _sent(
    definition: TableSchema, columns: Sequence[Column], modes: DebeziumModes
) -> Callable[[bytes, bytes], tuple[bytes, bytes]]:
    maker = EnvelopeMaker("the-bridge", "shop", "1.0", lambda: 1)
    maker.learn(definition, columns, modes)

    def sent(value: bytes, header: bytes) -> tuple[bytes, bytes]:
        ((made, marked),) = maker.values(b"{}", value, header, None)
        assert made is not None
        return made, marked

    return sent


class Table:
    """A table in a format: what is written is read as every reader of ours does it."""

    def __init__(self, value_format: Format, types: Sequence[Type], columns: Sequence[Column]) -> None:
        self.writer, self._sent, definition = value_format(columns)
        self._header = b"v=1;op=c;lsn=0/1;seq=1;xid=1;ts=1;schema=" + definition.fingerprint.encode()
        self._opener = ValueOpener([definition])
        names = [column.name for column in columns]
        self._reader = JSON.reader([each.read_column(name) for each, name in zip(types, names, strict=True)])
        self._names = names

    def value(self, row: Row) -> tuple[bytes, bytes]:
        """The value and the header of a record."""
        return self._sent(self.writer.encode(row), self._header)

    def opened(self, value: bytes, header: bytes) -> bytes:
        """The value as an object."""
        found = self._opener.row(value, header)
        assert found is not None
        return found

    def texts(self, row: Row) -> tuple[str, ...]:
        """What is read of a row that was written."""
        hidden = [self._names[place] for place in self.writer.null_documents(row)]
        return tuple(self._reader.row(self.opened(*self.value(row)), hidden))

    def read(self, value: bytes, header: bytes) -> Sequence[str]:
        """What is read of any value."""
        return self._reader.row(self.opened(value, header), ())

    def block(self, rows: Sequence[Row]) -> Sequence[Sequence[str]] | None:
        """What is read of many rows at once."""
        return self._reader.block([self.opened(*self.value(row)) for row in rows], are_keys=False)


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


class ValueContract:
    """What encoder, sink and repair expect of a format of values."""

    value_format: ClassVar[Format]
    refused: ClassVar[frozenset[str]] = frozenset()
    """Types of which the format refuses some values, and says so."""
    tells_its_end: ClassVar[bool] = True
    """Whether a value without its end is never another row."""

    def of(self, types: Sequence[Type], columns: Sequence[Column]) -> Table:
        return Table(type(self).value_format, types, columns)

    def test_values_of_every_type_come_back(self, catalogue: Catalogue) -> None:
        found, expected, refused = {}, {}, set()
        for name, each in catalogue.types.items():
            table, json_writer = self.of([each], [each.column("c")]), JSON.writer([each.column("c")])
            held = [text for text in each.texts if not table.writer.problem(0, text)]
            for text in each.texts:
                if text not in held:
                    refused.add(name)
                    with pytest.raises(NOT_ENCODABLE):
                        table.writer.encode((text,))
                    continue
                assert table.opened(*table.value((text,))) == json_writer.encode((text,)), f"{name} {text!r}"
                assert table.writer.null_documents((text,)) == json_writer.null_documents((text,))
            texts = [text for row in held for text in table.texts((row,))]
            found[name] = catalogue.printed(name, [text.encode() for text in texts])
            expected[name] = tuple(held)
            assert held, f"no value of {name} is held"
        assert found == expected
        assert refused == self.refused

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("json", rb'"\ud800"'),
            ("json[]", rb'{"\"\\ud800\""}'),
            ("json", _DEEP),
            ("jsonb", b'{"a": %b}' % _DEEP),
            ("json[]", b"{NULL,%b}" % _DEEP),
        ],
    )
    def test_a_document_that_only_postgresql_reads_comes_back(
        self, name: str, text: bytes, catalogue: Catalogue
    ) -> None:
        """Half a surrogate pair, or deeper than parsers go: opened as JSON has it, and read byte for byte."""
        each = catalogue.types[name]
        assert catalogue.printed(name, [text]) == (text,)
        columns = [each.column("c")]
        table = self.of([each], columns)
        assert table.opened(*table.value((text,))) == JSON.writer(columns).encode((text,))
        assert table.texts((text,)) == (text.decode(),)
        assert table.block([(text,)]) in (None, [(text.decode(),)])

    def test_random_rows_come_back_at_once_and_one_by_one(self, catalogue: Catalogue) -> None:
        rng = random.Random(SEED)
        held = 0
        for _ in range(times(30, soak=600)):
            types, columns, key = random_table(rng, catalogue)
            table, json_writer = self.of(types, columns), JSON.writer(columns)
            rows = [row for row in (random_row(rng, types, columns, key) for _ in range(20)) if holds(table, row)]
            held += len(rows)
            assert [table.opened(*table.value(row)) for row in rows] == list(map(json_writer.encode, rows)), (
                f"SEED={SEED}"
            )
            single = [table.texts(row) for row in rows]
            for place, each in enumerate(types):
                texts = [row[place] for row in single]
                given = [text.encode() for text in texts if text != NULL]
                found = iter(catalogue.printed(each.name, given))
                column = [None if text == NULL else next(found) for text in texts]
                assert column == [row[place] for row in rows], f"SEED={SEED}, a column of type {each.name}"
            at_once = None if any(map(table.writer.null_documents, rows)) else table.block(rows)
            assert at_once is None or [tuple(row) for row in at_once] == single, f"SEED={SEED}"
        assert held > 0

    def test_what_is_written_in_c_is_the_same_or_declined(self, catalogue: Catalogue) -> None:
        for name, each in catalogue.types.items():
            writer = self.of([each], [each.column("c")]).writer
            for text in each.texts if writer.compiled is not None else ():
                is_held = not writer.problem(0, text)
                assert writer.compiled.encode((text,)) in (writer.encode((text,)) if is_held else None, None), name

    def test_a_bare_template_makes_what_the_writer_does(self, catalogue: Catalogue) -> None:
        for each in catalogue.types.values():
            writer = self.of([each], [each.column("c")]).writer
            if writer.bare_template is not None:
                assert [writer.bare_template % text for text in each.texts] == [
                    writer.encode((text,)) for text in each.texts
                ]

    def test_a_row_that_is_not_whole_is_refused(self, catalogue: Catalogue) -> None:
        types = [*catalogue.types.values()]
        columns = [each.column(each.name) for each in types]
        writer = self.of(types, columns).writer
        whole: Row = tuple(
            next(text for text in each.texts if not writer.problem(place, text)) for place, each in enumerate(types)
        )
        writer.encode(whole)
        torn: tuple[Row, ...] = (whole[:-1], (*whole, b"1"), (*whole[:-1], UNCHANGED_TOAST))
        for row in torn:
            with pytest.raises(NOT_ENCODABLE):
                writer.encode(row)

    def test_a_text_that_is_not_of_its_type_is_a_problem_of_its_column(self, catalogue: Catalogue) -> None:
        types = [catalogue.types[name] for name in ("integer", "boolean", "text")]
        writer = self.of(types, [each.column(each.name) for each in types]).writer
        assert (writer.problem(0, b"7"), writer.problem(1, b"t"), writer.problem(2, b"t")) == ("", "", "")
        assert "'maybe'" in writer.problem(1, b"maybe")
        assert "0xff" in writer.problem(2, b"\xff")

    def test_bytes_that_lack_their_end_are_refused(self, catalogue: Catalogue) -> None:
        types = [catalogue.types[name] for name in ("integer", "text", "jsonb", "integer[]")]
        table = self.of(types, [each.column(each.name) for each in types])
        whole, header = table.value((b"7", b"a\\b", b"[1, null]", b"{1,NULL}"))
        for length in range(len(whole)):
            if self.tells_its_end:
                with pytest.raises(ValueError, match=r"\w"):
                    table.read(whole[:length], header)
                continue
            try:
                found = table.read(whole[:length], header)
            except ValueError:
                continue
            assert NULL in found, "a row that lacks columns"

    def test_damaged_values_are_refused_or_are_rows(self, catalogue: Catalogue) -> None:
        rng = random.Random(SEED)
        refused = read = 0
        for _ in range(times(40, soak=2_000)):
            types, columns, key = random_table(rng, catalogue)
            table, row = self.of(types, columns), random_row(rng, types, columns, key)
            if not holds(table, row):
                continue
            value, header = table.value(row)
            for each in damaged(rng, value):
                try:
                    assert len(table.read(each, header)) == len(columns)
                    read += 1
                except ValueError:
                    refused += 1
                except Exception as error:  # noqa: BLE001 - that is what must not happen
                    pytest.fail(f"SEED={SEED} {type(error).__name__} {error}: {columns} {each!r}")
        assert refused > 0
        assert read > 0


def holds(table: Table, row: Row) -> bool:
    """Whether the format holds the row's values."""
    return not any(table.writer.problem(place, cell) for place, cell in enumerate(row) if isinstance(cell, bytes))


class TestJson(ValueContract):
    value_format = staticmethod(in_json)


class TestAvro(ValueContract):
    value_format = staticmethod(with_schema("avro"))


class TestProtobuf(ValueContract):
    value_format = staticmethod(with_schema("protobuf"))
    tells_its_end = False


class TestJsonSchema(ValueContract):
    value_format = staticmethod(with_schema("json-schema"))


class TestEnvelope(ValueContract):
    value_format = staticmethod(enveloped)
    refused = frozenset(
        {
            *("date", "time", "time(3)", "timestamp", "timestamptz", "bigint[]", "boolean[]", "box[]", "bytea[]"),
            *("date[]", "integer[]", "jsonb[]", "mood[]", "numeric(6,2)[]", "real[]", "text[]", "time[]"),
            *("timestamp[]", "timestamptz[]"),
        }
    )


class TestEnvelopeInAvro(ValueContract):
    value_format = staticmethod(enveloped_in_avro(_MODES))
    refused = TestEnvelope.refused


class TestKeys:
    """Keys are JSON, whatever the values are."""

    def test_keys_of_every_type_come_back(self, catalogue: Catalogue) -> None:
        found, expected = {}, {}
        for name, each in catalogue.types.items():
            if name == "json[]":  # has no order, so that no key has it
                continue
            columns = [each.column("k"), Column("n", 23, -1, "pg_catalog.int4", True)]
            writer = JSON.writer(columns)
            keys = [writer.encode((text, b"%d" % n)) for n, text in enumerate(each.texts)]
            assert {JSON.members(key) for key in keys} == {frozenset({"k", "n"})}
            texts = [JSON.key_texts(columns, key) or (b"", b"") for key in keys]
            assert [number for _, number in texts] == [b"%d" % n for n in range(len(keys))]
            found[name] = catalogue.printed(name, [text for text, _ in texts])
            expected[name] = each.texts
        assert found == expected

    def test_bytes_that_lack_their_end_are_refused(self, catalogue: Catalogue) -> None:
        types = [catalogue.types[name] for name in ("integer", "text", "jsonb", "integer[]")]
        columns = [each.column(each.name) for each in types]
        whole = JSON.writer(columns).encode((b"7", b"a\\b", b"[1, null]", b"{1,NULL}"))
        reader = JSON.reader([each.read_column(each.name) for each in types])
        for length in range(len(whole)):
            assert reader.block([whole[:length]], are_keys=True) is None
            assert JSON.key_texts(columns, whole[:length]) is None
