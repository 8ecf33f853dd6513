"""Tables that hold every type a plain server knows, with every edge value, and what to do to them.

``type_catalogue`` lists scalars and some arrays with their values. Here each scalar also becomes an array column with
NULL elements, no elements, two dimensions and a lower bound of its own, and each toastable type a column whose values
lie out of line. Columns are called after their types, so that brackets, quotes, commas and blanks are in their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from tests.support.type_catalogue import CUSTOM_TYPES, VALUE_TYPES

ODD_SETTINGS: Final = (
    "TimeZone = 'US/Samoa'",
    "DateStyle = 'SQL, DMY'",
    "IntervalStyle = 'sql_standard'",
    "extra_float_digits = -5",
    "bytea_output = 'escape'",
    "search_path = 'other', 'public'",
    "xmlbinary = 'hex'",
)
"""What a database may set for every connection to it, walsenders included, and what must not reach a topic."""

PINNED: Final = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c search_path=public"
"""``options`` of the connection that writes the values: so their texts mean one thing."""

MORE_TYPES: Final = (
    CUSTOM_TYPES
    + """
CREATE SCHEMA other;
CREATE TYPE other.mood AS ENUM ('other sad', 'sad');
CREATE TYPE public."_Odd ""Type.x" AS ENUM ('{a', 'b,c');
CREATE DOMAIN other.label AS varchar(10) DEFAULT 'none' CHECK (value <> '');
CREATE DOMAIN other.price AS numeric(8,2);
CREATE DOMAIN when_where AS tstzrange;
CREATE TYPE nested AS (p pair, texts text[], ts timestamptz, f double precision, raw bytea);
"""
)

SCALARS: Final[dict[str, tuple[str, ...]]] = {
    **{name: values for name, values in VALUE_TYPES.items() if not name.endswith("[]")},
    "json": (*VALUE_TYPES["json"], "null", '{"n": 12345678901234567890.10, "k": null}'),
    "jsonb": (*VALUE_TYPES["jsonb"], "null", "9007199254740993", "1.10"),
    "bit": ("0", "1"),
    "bit(64)": ("1" + "0" * 63, "0" * 64),
    "bit varying(7)": ("", "0", "0000001"),
    "numeric(5,-2)": ("12300", "-99900"),
    "numeric(3,2)": ("1.1", "0.00", "NaN"),
    "time(3)": ("12:34:56.789", "00:00:00.001"),
    "interval day to second(3)": ("3 days 04:05:06.789",),
    "interval year to month": ("1-2", "-1-2"),
    "xid8": ("0", "18446744073709551615"),
    "xid": ("0", "4294967295"),
    "pg_snapshot": ("10:20:10,14,15", "1:1:"),
    "txid_snapshot": ("10:20:10,14,15",),
    "tid": ("(0,1)", "(4294967295,65535)"),
    "oidvector": ("1 2 4294967295", ""),
    "regclass": ("pg_class", "other.named", "public.named", "0"),
    "regtype": ("integer", "other.mood", 'public."_Odd ""Type.x"', "pair[]"),
    "regproc": ("now", "0"),
    "regprocedure": ("abs(integer)",),
    "regnamespace": ("pg_catalog", "other"),
    "regconfig": ("english", "simple"),
    "refcursor": ("a cursor", ""),
    "nummultirange": ("{[1.10,2.2],(5,)}", "{(,)}"),
    "tstzmultirange": ('{["2019-03-31 15:30:00+00",infinity)}',),
    "datemultirange": ("{[2026-01-01,2026-02-01)}",),
    "int8range": ("[-9223372036854775808,5)", "(,)"),
    "tsrange": ('["4713-01-01 00:00:00 BC",infinity]',),
    "other.mood": ("other sad", "sad"),
    'public."_Odd ""Type.x"': ("{a", "b,c"),
    "other.label": ("x", "ünï"),
    "other.price": ("1.10", "-999999.99"),
    "when_where": ("[2026-01-01 00:00:00+00,infinity)", "empty"),
    "nested": ("(,,,,)", '("(1,\\"a b\\")","{x,NULL}","2026-01-01 00:00:00+00",NaN,"\\\\x00ff")'),
}
"""SQL type → values as input text."""

EXTENSION_TYPES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "vector": {
        "vector": ("[1,2.5,-3e-07]", "[0]"),
        "vector(3)": ("[1,2,3]",),
        "halfvec": ("[1,0.5]",),
        "sparsevec": ("{1:1.5,3:-2}/5", "{}/5"),
        "vector[]": ('{"[1,2]",NULL}', "{}"),
    },
    "hstore": {"hstore": ('"a"=>"1", "b"=>NULL, "q\\"uote"=>"x,y"', ""), "hstore[]": ('{"\\"a\\"=>\\"1\\""}',)},
    "citext": {"citext": ("Ab", ""), "citext[]": ("{Ab,NULL}",)},
    "ltree": {"ltree": ("Top.Science", ""), "ltree[]": ("{a.b,c}",)},
    "isn": {"isbn": ("978-0-393-04002-9",)},
    "cube": {"cube": ("(1,2),(3,4)",)},
    "postgis": {"geometry": ("POINT(1 2)", "GEOMETRYCOLLECTION EMPTY")},
}
"""Extension → its types; each is tried where the server has it."""

_RANDOM_TEXT: Final = "(SELECT string_agg(md5(({seed} * 1000 + i)::text), ' ') FROM generate_series(1, 120) i)"

BIG: Final[dict[str, str]] = {
    "text": "{text}",
    "varchar": "{text}",
    "varchar(5000)": "{text}",
    "varchar[]": "string_to_array({text}, ' ')::varchar[]",
    "bytea": "convert_to({text}, 'UTF8')",
    "json": "json_build_object('k', {text}, 'n', 1.10)",
    "jsonb": "jsonb_build_object('k', {text}, 'n', 9007199254740993)",
    "text[]": "string_to_array({text}, ' ')",
    "bytea[]": "ARRAY[convert_to({text}, 'UTF8'), NULL]",
    "json[]": "ARRAY[to_json({text}), NULL]",
    "jsonb[]": "ARRAY[to_jsonb({text})]",
    "uuid[]": "string_to_array({text}, ' ')::uuid[]",
    "integer[]": "(SELECT array_agg(i::bigint * 791 * {seed} % 100003)::integer[] FROM generate_series(1, 1500) i)",
    "bigint[]": "(SELECT array_agg(9007199254740993 + i::bigint * i * {seed}) FROM generate_series(1, 900) i)",
    "date[]": "(SELECT array_agg('2000-01-01'::date + i * {seed}) FROM generate_series(1, 1500) i)",
    "numeric": "('0.' || regexp_replace({text}, '[^0-9]', '', 'g') || repeat('71', 3000))::numeric",
    "bit varying": "(SELECT string_agg((i::bigint * i * {seed} / 7 % 2)::text, '')::varbit"
    " FROM generate_series(1, 30000) i)",
    "tsvector": "to_tsvector('simple', {text})",
    "polygon": "(SELECT ('(' || string_agg('(' || i || ',' || {seed} || '.5)', ',') || ')')::polygon"
    " FROM generate_series(1, 300) i)",
    "path": "(SELECT ('[' || string_agg('(' || i || ',-' || {seed} || ')', ',') || ']')::path"
    " FROM generate_series(1, 300) i)",
    "int8multirange": "(SELECT range_agg(int8range(i * 10 + {seed}, i * 10 + {seed} + 3))"
    " FROM generate_series(1, 300) i)",
    "texts": "string_to_array({text}, ' ')::texts",
    "pair": "ROW({seed}, {text})::pair",
}
"""Toastable type → an expression that makes a big value; ``{text}`` is a random text, ``{seed}`` a number."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("", " ", 'a"b', "a\\b", "NULL", "null", "é", "e\u0301", "\x01\t\n", "{}", "%s", "𝔘"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"),
    "timestamptz": ("2026-03-29 01:30:00.000001+02", "infinity", "-infinity", "4714-12-31 23:59:59Z BC"),
    "numeric": ("1.0", "1.5", "NaN", "Infinity", "-0.00", "12345678901234567890.123"),
    "bytea": ("", "\\x00", "\\xff00", "\\x5c22"),
    "double precision": ("-0", "NaN", "Infinity", "1e-7", "0.1"),
    "bigint": ("-9223372036854775808", "9007199254740993"),
    "boolean": ("t", "f"),
    "oid": ("4000000000", "0"),
    "char(5)": ("a", "a b", ""),
    '"char"': ("a", ""),
    "name": ("a", ""),
    "date": ("0001-01-01 BC", "2026-01-01"),
    "timetz": ("24:00:00+15:59", "04:05:06-08"),
    "interval": ("1 day", "1 mon", "-00:00:00.000001"),
    "inet": ("10.0.0.1", "10.0.0.1/8", "::1"),
    "macaddr": ("08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff"),
    "bit(3)": ("001", "111"),
    "bit varying": ("", "0", "00"),
    "money": ("$1.10", "-92233720368547758.08"),
    "pg_lsn": ("0/0", "16/B374D848"),
    "int4range": ("empty", "[1,5)"),
    "text[]": ("{}", '{"a,b",NULL,"q\\"q"}', "{{a},{b}}"),
    "jsonb": ('{"a": [1, null]}', "[]", '"s"', "1.10", "null"),
    "mood": ("sad", 'so "happy"', "ünï"),
    "other.mood": ("sad",),
    "positive": ("1", "2"),
    "other.label": ("a b",),
    "pair": ('(1,"a b")', "(,)"),
}
"""Type of a primary key → distinct values."""

SAME_BUT_SPELT_ANOTHER_WAY: Final = {
    "numeric": ("1.0", "1.00"),
    "double precision": ("-0", "0"),
    "interval": ("1 day", "24:00:00"),
    "jsonb": ("1.10", "1.1"),
}
"""Keys that are equal to the server and have two texts, so two record keys."""


@dataclass(frozen=True)
class MatrixTable:
    """A table with column ``id`` (the key), ``touched``, and one column per type; values are SQL expressions."""

    namespace: str
    name: str
    columns: Mapping[str, Sequence[str]]
    full: bool
    external: bool = False

    @property
    def qualified(self) -> str:
        """``namespace.name``, unquoted."""
        return f"{self.namespace}.{self.name}"

    @property
    def row_count(self) -> int:
        """As many as the longest list of values, at least ten."""
        return max(10, *map(len, self.columns.values()))

    def create(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table."""
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(name)) for name in self.columns]
        connection.execute(
            sql.SQL("CREATE TABLE {} (id integer PRIMARY KEY, touched integer, {})").format(
                self._identifier, sql.SQL(", ").join(columns)
            )
        )
        if self.full:
            connection.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(self._identifier))
        for name in self.columns if self.external else ():
            connection.execute(
                sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET STORAGE EXTERNAL").format(
                    self._identifier, sql.Identifier(name)
                )
            )

    def insert(self, connection: psycopg.Connection[Any]) -> None:
        """All rows in one transaction, and a last one of NULLs."""
        with connection.transaction():
            for row in range(self.row_count):
                values = [sql.SQL(expressions[row % len(expressions)]) for expressions in self.columns.values()]
                connection.execute(
                    sql.SQL("INSERT INTO {} VALUES ({}, 0, {})").format(
                        self._identifier, sql.Literal(row), sql.SQL(", ").join(values)
                    )
                )
            connection.execute(sql.SQL("INSERT INTO {} (id) VALUES (9999)").format(self._identifier))

    def update(self, connection: psycopg.Connection[Any]) -> None:
        """Everything, one column, nothing, the key, and the key with one column."""
        with connection.transaction():
            for row in range(0, self.row_count, 3):
                shifted = sql.SQL(", ").join(
                    sql.SQL("{} = {}").format(sql.Identifier(name), sql.SQL(expressions[(row + 1) % len(expressions)]))
                    for name, expressions in self.columns.items()
                )
                self._set(connection, shifted, f"id = {row}")
            self._set(connection, sql.SQL("touched = 1"), "id % 3 = 1")
        self._set(connection, sql.SQL("touched = touched"), "id % 7 = 4")
        with connection.transaction():
            self._set(connection, sql.SQL("id = id + 1000"), "id % 5 = 1 AND id < 1000")
            self._set(connection, sql.SQL("id = id + 2000, touched = 2"), "id % 5 = 2 AND id < 1000")
        self._set(connection, sql.SQL("touched = 3"), "id = 9999")

    def delete(self, connection: psycopg.Connection[Any]) -> None:
        """Half of the rows, some just after an update in the same transaction, and the row of NULLs."""
        with connection.transaction():
            self._set(connection, sql.SQL("touched = 4"), "id % 4 = 0")
            connection.execute(sql.SQL("DELETE FROM {} WHERE id % 4 < 2 OR id = 9999").format(self._identifier))

    @property
    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(self.namespace, self.name)

    def _set(self, connection: psycopg.Connection[Any], assignments: sql.Composable, where: str) -> None:
        connection.execute(sql.SQL("UPDATE {} SET {} WHERE {}").format(self._identifier, assignments, sql.SQL(where)))


def matrix_tables(connection: psycopg.Connection[Any]) -> list[MatrixTable]:
    """The tables for what this server knows; ``MORE_TYPES`` and extensions exist."""
    extensions = {name for (name,) in connection.execute("SELECT extname FROM pg_extension")}
    plain = dict(SCALARS)
    if connection.info.server_version < 150000:
        del plain["numeric(5,-2)"]  # no negative scale yet
    scalars = {name: [_cast(value, name) for value in values] for name, values in plain.items()}
    for extension in extensions & set(EXTENSION_TYPES):
        for name, values in EXTENSION_TYPES[extension].items():
            scalars[name] = [_cast(value, name) for value in values]
    arrays = {f"{name}[]": list(_arrays(name, values)) for name, values in plain.items()}
    for name, values in VALUE_TYPES.items():
        if name.endswith("[]"):
            arrays.setdefault(name, []).extend(_cast(value, name) for value in values)
    big = {
        name: [expression.replace("{text}", _RANDOM_TEXT).replace("{seed}", str(100 * place + n)) for n in (1, 2, 3)]
        for place, (name, expression) in enumerate(BIG.items())
    }
    return [
        MatrixTable("public", f"{what} {'full' if full else 'default'}", columns, full, what == "big")
        for full in (False, True)
        for what, columns in (("scalars", scalars), ("arrays", arrays), ("big", big))
    ]


def available_extensions(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """Extensions of ``EXTENSION_TYPES`` that this server could make."""
    for (name,) in connection.execute("SELECT name FROM pg_available_extensions ORDER BY 1"):
        if name in EXTENSION_TYPES:
            yield name


def _cast(value: str, type_name: str) -> str:
    return sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(type_name)).as_string(None)


def _arrays(element: str, values: Sequence[str]) -> Iterator[str]:
    one, *_ = elements = [_cast(value, element) for value in values]
    yield f"ARRAY[{', '.join([*elements, 'NULL'])}]::{element}[]"
    yield f"'{{}}'::{element}[]"
    yield f"array_fill({one}, ARRAY[2, 2])::{element}[]"
    yield f"array_fill({one}, ARRAY[2], ARRAY[-1])::{element}[]"
    yield f"ARRAY[NULL, NULL]::{element}[]"
