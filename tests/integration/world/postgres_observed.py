"""What scripts observe of a PostgreSQL, in a form that two servers share.

What a server numbers as it likes (positions, transactions, oids) is observed as ``Lsn``, ``Xid`` and ``Oid``, and
compared by rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from cdc.base.errors import CdcError
from cdc.bridge.decode.pgoutput import Message
from cdc.bridge.source.catalog import table_info
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Begin, Commit, Delete, Insert, Relation, Truncate, Update
from tests.integration.world.postgres_sides import Side, Writer

Script: TypeAlias = Callable[[Side], list[Any]]


ITEMS: Final = {"items": {"id": "int8", "name": "text", "body": "text"}}
BIG: Final = b"x" * 3_000


class Lsn(int):
    """A position."""


class Xid(int):
    """A transaction id."""


class Oid(int):
    """An oid, or the name of a file."""


def ranked(observed: list[Any]) -> list[Any]:
    """Returns what was observed, with numbers replaced by their rank among those of their kind."""
    found: dict[type, set[int]] = {Lsn: set(), Xid: set(), Oid: set()}

    def collect(each: Any) -> None:
        if type(each) in found:
            found[type(each)].add(each)
        for part in _parts(each):
            collect(part)

    collect(observed)
    ranks = {kind: {number: place for place, number in enumerate(sorted(all_))} for kind, all_ in found.items()}

    def replaced(each: Any) -> Any:
        if type(each) in found:
            return type(each).__name__, ranks[type(each)][each]
        if isinstance(each, dict):
            return {name: replaced(part) for name, part in each.items()}
        return [replaced(part) for part in each] if isinstance(each, list | tuple) else each

    return [replaced(each) for each in observed]


def _parts(each: Any) -> Iterable[Any]:
    if isinstance(each, dict):
        return each.values()
    return each if isinstance(each, list | tuple) else ()


def told(messages: list[Message]) -> list[Any]:
    """Returns what a stream said."""
    return [_told(each) for each in messages]


def _told(message: Message) -> Any:
    match message:
        case Begin(lsn, _, xid):
            return "begin", Lsn(lsn), Xid(xid)
        case Commit(lsn, end, _):
            return "commit", Lsn(lsn), Lsn(end)
        case Relation():
            return "relation", *described(message)
        case Insert(relation, new):
            return "insert", relation.name, list(map(short, new))
        case Update(relation, old, is_full, new):
            before = None if old is None else list(map(short, old))
            return "update", relation.name, is_full, before, list(map(short, new))
        case Delete(relation, old, is_full):
            return "delete", relation.name, is_full, list(map(short, old))
        case Truncate(relations, cascade, restart):
            return "truncate", [each.name for each in relations], cascade, restart
    raise AssertionError(message)


def described(relation: Relation) -> tuple[Any, ...]:
    columns = [
        (each.name, each.type_oid, each.type_modifier, each.type_name, each.in_identity) for each in relation.columns
    ]
    return Oid(relation.relation_id), relation.namespace, relation.name, relation.replica_identity.value, columns


def short(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.decode() if len(cell) < 100 else (cell[:1].decode(), len(cell))
    return None if cell is None else str(cell)


def failure_of(act: Callable[[], object]) -> Any:
    """Returns the classes of the error that the product raises, and of the server's."""
    try:
        act()
    except CdcError as error:
        return type(error).__name__, type(error.__cause__).__name__
    return "none"


def info_of(conn: Any, name: str = "items") -> TableInfo:
    """Returns a table as the catalog has it."""
    found = table_info(conn, "public", name, {})
    assert found is not None
    return found


def into(scripts: dict[str, Script]) -> Callable[[Script], Script]:
    """The function is one of these scripts."""

    def add(run: Script) -> Script:
        scripts[run.__name__] = run
        return run

    return add


def adds(key: int, table: str = "items") -> Callable[[Writer], None]:
    """Returns what inserts a row."""
    return lambda writer: writer.insert(table, {"id": b"%d" % key})
