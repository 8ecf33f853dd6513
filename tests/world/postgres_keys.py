"""Answers statements that look rows up by key: re-reads of unchanged values, and repairs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg import errors

from tests.world.postgres_errors import failure
from tests.world.postgres_names import QUOTED, elements, literal
from tests.world.postgres_tables import RowVersion, WorldTable

if TYPE_CHECKING:
    from tests.world.postgres_sessions import ServerSession

Locked = Callable[["ServerSession", str], WorldTable]
"""Returns a table by its quoted name, once it is locked for reading."""

_NAME: Final = r'"((?:[^"]|"")+)"'
_KEYS: Final = r"SELECT o, (?P<casts>.*) FROM unnest\([^)]*\) WITH ORDINALITY AS v\(.*, o\)"
_KEYS_ALONE: Final = re.compile(_KEYS + "$")
_LOOK_UP: Final = re.compile(
    rf"SELECT k\.o, (?P<values>.*) FROM \({_KEYS}\) k"
    rf" JOIN \(SELECT .* FROM ONLY (?P<table>{QUOTED})\) t ON (?P<on>.*)$"
)
_REREAD: Final = re.compile(
    r"SELECT '(?:[^']|'')*'::pg_catalog\.regclass::pg_catalog\.oid, k\.o, pg_catalog\.pg_current_snapshot\(\), "
    r".* FROM pg_catalog\.unnest\((?P<names>'(?:[^']|'')*')::text\[\]\) WITH ORDINALITY AS w\(name, place\) .*"
    r"t\.xmin, (?P<values>.*) FROM unnest\(.*\) WITH ORDINALITY AS k\(.*, o\) "
    rf"LEFT JOIN ONLY (?P<table>{QUOTED}) AS t ON (?P<on>.*)$"
)
_INTEGER: Final = re.compile(rb"\s*([+-]?)0*(\d+)\s*")
_BITS: Final = {"int4": 31, "int8": 63}


class _Question(NamedTuple):
    """A statement, taken apart.

    Attributes:
        names: the columns whose numbers and types are asked for.
        values: the columns to return.
        key: the key's columns.
        types: the type that each text of a key is cast to.
    """

    kind: str
    table: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    key: tuple[str, ...]
    types: tuple[str, ...]


def answer_by_key(session: ServerSession, text: str, parameters: Sequence[bytes], locked: Locked) -> list[Any]:
    """Answer a statement of one of the three kinds.

    Raises:
        AssertionError: it is none of them.
    """
    question = _question(text)
    texts = zip(*(map(str.encode, elements(each.decode())) for each in parameters), strict=True)
    keys = [tuple(map(_cast, question.types, each)) for each in texts]
    if question.kind == "keys":
        return [(place, *key) for place, key in enumerate(keys, 1)]
    info = locked(session, question.table)
    sees = session.sees()
    for name in (*question.values, *question.key):
        if name not in info.by_name:
            raise failure(errors.UndefinedColumn, f"column t.{name} does not exist")
    versions = _by_key(info, question.key, sees.rows(session.server.heaps[info.filenode]))
    found = [(place, versions.get(key)) for place, key in enumerate(keys, 1)]
    if question.kind == "look up":
        return [(place, *_values(info, each, question.values)) for place, each in found if each is not None]
    columns = ",".join(_described(info, name) for name in question.names)
    rows = [
        (place, each and each.writer.xid & 0xFFFFFFFF, _values(info, each, question.values)) for place, each in found
    ]
    return [(info.oid, place, sees.text, columns, xid, *values) for place, xid, values in rows]


@cache
def _question(text: str) -> _Question:
    if (found := _REREAD.match(text)) is not None:
        key, types = _on(found["on"])
        names = tuple(elements(literal(found["names"])))
        return _Question("reread", found["table"], names, _names(found["values"]), key, types)
    if (found := _LOOK_UP.match(text)) is not None:
        key = tuple(each.replace('""', '"') for each in re.findall(rf'"t"\.{_NAME} OPERATOR', found["on"]))
        return _Question("look up", found["table"], (), _names(found["values"]), key, _casts(found["casts"]))
    found = _KEYS_ALONE.match(text)
    assert found is not None, f"the world does not know this query: {text}"
    return _Question("keys", "", (), (), (), _casts(found["casts"]))


def _on(condition: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pairs = re.findall(rf'"t"\.{_NAME} OPERATOR\([^)]*\) k\.{_NAME}::(\w+)', condition)
    assert pairs, condition
    return tuple(name.replace('""', '"') for name, _, _ in pairs), tuple(kind for _, _, kind in pairs)


def _names(columns: str) -> tuple[str, ...]:
    return tuple(each.replace('""', '"') for each in re.findall(rf'"?t"?\.{_NAME}', columns))


def _casts(casts: str) -> tuple[str, ...]:
    return tuple(re.findall(r"::(\w+) AS ", casts))


def _cast(kind: str, text: bytes) -> bytes:
    """Returns a key's text as the server writes the value."""
    if kind == "text":
        return text
    assert kind in _BITS, f"keys of type {kind} are not modelled"
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise failure(errors.InvalidTextRepresentation, f"invalid input syntax for type {kind}")
    number = int(found[1] + found[2])
    if not -(2 ** _BITS[kind]) <= number < 2 ** _BITS[kind]:
        raise failure(errors.NumericValueOutOfRange, f"value is out of range for type {kind}")
    return b"%d" % number


def _by_key(
    info: WorldTable, key: Sequence[str], versions: Iterable[RowVersion]
) -> dict[tuple[bytes | None, ...], RowVersion]:
    numbers = [info.by_name[name].number for name in key]
    return {tuple(info.cell(each.cells, number) for number in numbers): each for each in versions}


def _values(info: WorldTable, version: RowVersion | None, names: Sequence[str]) -> tuple[bytes | None, ...]:
    if version is None:
        return (None,) * len(names)
    return tuple(info.cell(version.cells, info.by_name[name].number) for name in names)


def _described(info: WorldTable, name: str) -> str:
    column = info.by_name.get(name)
    return "0 0 0" if column is None else f"{column.number} {column.type_oid} -1"
