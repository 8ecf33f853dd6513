"""Values of every type of the catalogue, as a real server prints them and as the stream names their types."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.contract.change import Column
from cdc.contract.formats.format import ReadColumn
from cdc.contract.pgtypes import sql_type, type_name
from tests.support.servers import Database
from tests.support.type_catalogue import CUSTOM_TYPES, KEY_TYPES, VALUE_TYPES

_OPTIONS: Final = "-c TimeZone=UTC -c DateStyle=ISO -c extra_float_digits=1"
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


@contextmanager
def printed_catalogue(
    database: Database, seed: int, more: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Catalogue]:
    """What the server prints of the catalogue's values, of random ones for keys, and of ``more``."""
    with database.connect(options=_OPTIONS) as connection:
        connection.execute(CUSTOM_TYPES.encode())
        rng = random.Random(seed)
        values = {**VALUE_TYPES}
        for name, make in KEY_TYPES.items():
            values[name] = (*values.get(name, ()), *(make(rng, n) for n in range(1, 20)))
        for name, inputs in (more or {}).items():
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
