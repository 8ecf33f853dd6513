"""Values of every type of the catalogue, as a real server prints them and as the stream names their types."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.contract.change import Column, Relation, ReplicaIdentity, Row
from cdc.contract.formats.format import ReadColumn
from cdc.contract.pgtypes import sql_type, type_name
from cdc.contract.record import TableSchema
from cdc.contract.schema import table_schema
from tests.support.servers import Database
from tests.support.type_catalogue import CUSTOM_TYPES, KEY_TYPES, VALUE_TYPES

_NAMES: Final = ("c", "C", "é", "%s", "%", "a b", "\\", '"', "_u5f_", "1x", "_ué", "before")
_OPTIONS: Final = "-c TimeZone=UTC -c DateStyle=ISO -c extra_float_digits=1"
EDGES: Final[dict[str, tuple[str, ...]]] = {
    "numeric(5,0)": ("0", "-99999", "99999", "NaN", "-128", "128", "127", "-129"),
    "numeric(3,3)": ("0.999", "-0.001", "0"),
    "numeric(3,5)": ("0.00999", "NaN"),
    "numeric(3,-2)": ("12300", "NaN", "0"),
    "numeric(1000,500)": ("9" * 500 + "." + "9" * 500, "-0." + "0" * 499 + "1"),
    "numeric(19,4)": ("92233720368547.7580", "-92233720368547.7581", "12.8", "-12.8", "0.0128", "0.0127"),
    "time(3)": ("23:59:59.999", "24:00:00", "00:00:00.1"),
    "date": ("9999-12-31", "10000-01-01", "0001-12-31 BC", "1969-12-31", "1970-01-01"),
    "timestamp": (
        "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "10000-01-01", "0001-12-31 BC",
        "1969-12-31 23:59:59.5",
    ),
    "timestamptz": (
        "0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z", "10000-01-01Z", "1969-12-31 23:59:59.999999Z",
    ),
    "numeric(6,2)[]": ("{1.10,NULL,-2.00}", "{}", "{{1.00}}", "[2:3]={1.00,NaN}"),
    "numeric[]": ("{1.10,NaN,1e50}", "{1.10}"),
    "date[]": ("{2026-01-01,NULL}", "{infinity}", '{"0044-03-15 BC"}'),
    "time[]": ("{10:00,24:00}", "{10:00:00.5}"),
    "timestamp[]": ('{"2026-01-01 00:00:00.123"}', "{-infinity}"),
    "timestamptz[]": ('{"2026-01-01 00:00:00+00",NULL}', '{"0044-03-15 00:00:00+00 BC"}'),
    "real[]": ("{1e-45,3.3,NaN,NULL}", "{{1,2}}"),
    "bigint[]": (
        "{-9223372036854775808,NULL,9223372036854775807,63,64,-64,-65,8191,8192}",
        "{-9223372036854775808,NULL,9223372036854775807}", "[5:5]={1}", "{}",
    ),
    "boolean[]": ("[5:6]={t,f}", "{{t},{f}}", "{t,NULL}"),
    "json": ('"\\ud800"', '{"a" : "\\udfff,", "b":[1.50, {}]}'),
    "json[]": (
        '{"{\\"a\\" : 1}"," 7 "}', '{" null "}',
        '{"\\"\\\\ud800\\"",NULL," [\\"\\\\ude00\\", 1 ]"}',
    ),
    "char(3)[]": ('{ab,NULL,""}',),
    '"char"[]': ("{a,b}",),
    "name[]": ("{a,null}",),
    "box[]": ("{}", "[3:3]={(1,1),(0,0)}", "{NULL}", "{(1,1),(0,0);(2,2),(1,1)}"),
    "int2vector[]": ('{"1 2","3"}',),
    "interval[]": ('{"1 day","-1 mons"}',),
    "mood[]": ("{}", "{NULL}", "[2:2]={ok}"),
    "bytea[]": ("{}", "[2:2]={NULL}", '{"\\\\x00ff",""}'),
    "bit(1)": ("0", "1"),
    "bit(9)": ("000000001", "100000000", "000000000"),
    "time(0)": ("23:59:59",),
    "timestamp(0)": ("1969-12-31 23:59:59",),
    "timestamptz(0)": ("2026-01-01 00:00:00Z",),
    "timestamptz(2)": ("2026-01-01 00:00:00.1Z",),
    "interval": ("-1 years -2 mons +3 days -04:05:06", "1000:00:00", "-1 mons +1 day", "-04:05:06.7", "11 mons"),
    "interval day to second(3)": ("3 days 04:05:06.789",),
    "bit(3)[]": ("{010,NULL}",),
    "money[]": ('{"$1,234.11"}',),
}  # fmt: skip
"""Values at the edges of what the formats' types hold, and more types, which differ only to formats."""
_STREAM_NAME: Final = """
WITH RECURSIVE base AS (
  SELECT typnamespace, typname, typbasetype FROM pg_type WHERE oid = %s::regtype
  UNION ALL
  SELECT t.typnamespace, t.typname, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.typbasetype)
SELECT typnamespace::regnamespace::text, typname FROM base WHERE typbasetype = 0
"""


@dataclass(frozen=True, slots=True)
class Type:
    """A type of the catalogue: as SQL names it, as the stream does, and what the server prints of its values."""

    name: str
    stream_name: str
    modifier: int
    texts: tuple[bytes, ...]

    def column(self, name: str) -> Column:
        return Column(name, 0, self.modifier, self.stream_name, True)

    def read_column(self, name: str) -> ReadColumn:
        return ReadColumn(name, sql_type(self.column(name)), ";" if self.name == "box[]" else ",")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Types by SQL name, and the server that knows what a text means."""

    connection: psycopg.Connection[Any]
    types: dict[str, Type]

    def printed(self, type_of: str, texts: Sequence[bytes]) -> tuple[bytes | None, ...]:
        """What the server makes of texts of one type."""
        return _printed(self.connection, type_of, [text.decode() for text in texts])[1]


def random_table(rng: random.Random, catalogue: Catalogue) -> tuple[list[Type], list[Column], tuple[str, ...]]:
    """Types and columns of a table, and its key."""
    types = rng.choices([*catalogue.types.values()], k=rng.randint(1, 12))
    columns = [each.column(rng.choice(_NAMES) + str(i)) for i, each in enumerate(types)]
    return types, columns, tuple(column.name for column in columns if rng.random() < 0.2)


def random_row(rng: random.Random, types: Sequence[Type], columns: Sequence[Column], key: Sequence[str]) -> Row:
    """A row of such a table: what the server prints, or NULL."""
    return tuple(
        None if column.name not in key and rng.random() < 0.2 else rng.choice(each.texts)
        for each, column in zip(types, columns, strict=True)
    )


def definition_of(columns: Sequence[Column], key: Sequence[str] = ()) -> TableSchema:
    """The definition of a table with these columns."""
    relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
    return table_schema(relation, key, "t")


def damaged(rng: random.Random, value: bytes) -> Iterator[bytes]:
    """A value that was cut, with other bytes in it, or lengthened."""
    yield from [value[:length] for length in range(len(value))][-300:]
    for _ in range(200):
        flipped = bytearray(value)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            flipped[rng.randrange(len(value))] = rng.choice(
                (rng.randrange(256), *b'"[]{},:0-9enT\xff\x80\x00\x01\x02\x04')
            )
        yield bytes(flipped)
    yield value + rng.randbytes(rng.randint(1, 3))


@contextmanager
def printed_catalogue(
    database: Database, seed: int, more: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Catalogue]:
    """What the server prints of the catalogue's values, of random ones for keys, of those at edges, and of ``more``."""
    with database.connect(options=_OPTIONS) as connection:
        connection.execute(CUSTOM_TYPES.encode())
        rng = random.Random(seed)
        values = {**VALUE_TYPES}
        for name, make in KEY_TYPES.items():
            values[name] = (*values.get(name, ()), *(make(rng, n) for n in range(1, 20)))
        for name, inputs in (*EDGES.items(), *(more or {}).items()):
            values[name] = (*values.get(name, ()), *inputs)
        types = {}
        for name, inputs in values.items():
            row = connection.execute(_STREAM_NAME, (name,)).fetchone()
            assert row is not None
            modifier, texts = _printed(connection, name, inputs)
            types[name] = Type(name, type_name(*row), modifier, tuple(text for text in texts if text is not None))
        yield Catalogue(connection, types)


def _printed(
    connection: psycopg.Connection[Any], type_of: str, texts: Sequence[str]
) -> tuple[int, tuple[bytes | None, ...]]:
    """The type's modifier, and what the server makes of texts."""
    cursor = connection.execute(f"SELECT v::{type_of} FROM unnest(%s::text[]) v".encode(), (list(texts),))
    result = cursor.pgresult
    assert result is not None
    return result.fmod(0), tuple(result.get_value(number, 0) for number in range(result.ntuples))
