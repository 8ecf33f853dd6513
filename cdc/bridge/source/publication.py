"""Makes the publication, keeps it as configured, or refuses it with the command that corrects it.

https://www.postgresql.org/docs/current/sql-createpublication.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import psycopg
from psycopg import errors as sqlstate
from psycopg import sql

from cdc.base.errors import CdcError, SourceLocked, SourceRefused
from cdc.base.table_names import qualified
from cdc.bridge.source.carried import state_query
from cdc.bridge.source.condition import in_parentheses
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.locks import naming_locks
from cdc.bridge.source.row_filter import applies, refusal_of
from cdc.bridge.source.table import TableInfo, quoted
from cdc.contract.change import ReplicaIdentity

Mode: TypeAlias = Literal["filtered", "all_tables", "disabled"]

_LOCK_TIMEOUT_S: Final = 5
"""Longer than ``deadlock_timeout``, after which PostgreSQL cancels an autovacuum that blocks us."""

_SHORT_WAIT: Final = "SET LOCAL lock_timeout = '1s'"
_OPERATIONS: Final = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True, slots=True)
class PublicationState:
    """What the publication carries now.

    Attributes:
        owned: whether our role may alter it.
        operations: which of insert, update, delete and truncate it publishes.
        tables: qualified names as the stream will give them: roots or leaves, by ``via_root``.
        narrowed: tables with a column list or a row filter.
        columns: the columns that are published of each narrowed table.
        has_unreadable: whether it also carries something whose name cannot be sent to us.
    """

    name: str
    owned: bool
    all_tables: bool
    via_root: bool
    operations: frozenset[str]
    tables: frozenset[str]
    narrowed: frozenset[str]
    columns: Mapping[str, frozenset[str]]
    has_unreadable: bool = False


def inspect_publication(conn: psycopg.Connection[Any], name: str) -> PublicationState | None:
    """Returns the publication's state now; None when there is none of that name. Waits for no lock on a table."""
    with source_errors("reading publications"):
        row = conn.execute(state_query(conn).encode(), (name,)).fetchone()
    if row is None:
        return None
    owned, all_tables, via_root, *published, tables, narrowed, columns, unreadable = row
    operations = frozenset(name for name, on in zip(_OPERATIONS, published, strict=True) if on)
    carried, limited = (frozenset(qualified(*each) for each in listed) for listed in (tables, narrowed))
    lists = {qualified(namespace, table): frozenset(names) for namespace, table, names in columns}
    return PublicationState(name, owned, all_tables, via_root, operations, carried, limited, lists, unreadable)


def ensure_publication(
    conn: psycopg.Connection[Any], *, name: str, mode: Mode, tables: Sequence[TableInfo]
) -> Literal["created", "altered", "kept"]:
    """Bring the publication to what the configuration asks for.

    Args:
        name: the publication's name.
        mode: ``filtered`` makes it carry exactly ``tables``; ``all_tables`` makes it FOR ALL TABLES; ``disabled``
            changes nothing and only looks.
        tables: the tables that are wanted, from ``find_tables``. Their conditions become row filters.

    Raises:
        SourceRefused: it lacks something that we may not, or must not, change ourselves.
        SourceLocked: somebody holds a lock on a table that is to be carried; the message says who.
    """
    state = refuse_unfit(conn, name=name, mode=mode, tables=tables)
    if state is None:
        try:
            _run(conn, f"making publication {name}", [creation_command(name, mode, tables)], tables)
        except CdcError as error:
            if not isinstance(error.__cause__, sqlstate.DuplicateObject | sqlstate.UniqueViolation):
                raise
            # Somebody else made it just now: treat it like any other that is there
            return ensure_publication(conn, name=name, mode=mode, tables=tables)
        return "created"
    if mode != "filtered":
        return "kept"
    unlike = _filtered_otherwise(conn, state, tables)
    if not unlike and state.tables == {table.qualified_name for table in tables} and not state.has_unreadable:
        return "kept"
    _alter(conn, state, tables, unlike)
    return "altered"


def refuse_unfit(
    conn: psycopg.Connection[Any], *, name: str, mode: Mode, tables: Sequence[TableInfo]
) -> PublicationState | None:
    """Look only, with the arguments of ``ensure_publication``. Returns the publication; None if it is to be made.

    Raises:
        SourceRefused: it does not fit, and we must not change it.
    """
    state = inspect_publication(conn, name)
    if state is None:
        if mode == "disabled":
            raise SourceRefused(
                f"publication {name} does not exist, and source.publication_mode is disabled",
                remedy=creation_command(name, mode, tables),
            )
    elif refusal := why_unfit(state, mode=mode, tables=tables):
        raise refusal
    return state


def add_table(conn: psycopg.Connection[Any], name: str, table: TableInfo) -> bool:
    """Let the publication carry one more table. Nothing happens if it names the table already.

    Returns:
        False when the table is gone by now.

    Raises:
        SourceRefused: our role may not, or there is no such publication.
        SourceLocked: somebody holds a lock on the table; the message says who. Try again.
    """
    try:
        _add(conn, name, [table])
    except CdcError as error:
        if isinstance(error.__cause__, sqlstate.DuplicateObject):
            return True
        if isinstance(error.__cause__, sqlstate.UndefinedTable | sqlstate.InvalidSchemaName):
            return False
        raise
    return True


def rehearse(conn: psycopg.Connection[Any], state: PublicationState | None, name: str, table: TableInfo) -> str:
    """Returns why PostgreSQL refuses a table's condition as a row filter, in its words; an empty text if it does not.

    Only the attempt tells which functions and types it takes. So this publishes the table, and rolls that back.

    Args:
        state: the publication; None when there is none of that name.
    """
    statements = [creation_command(name, "filtered", [table])] if state is None else filter_commands(state, table)
    try:
        with source_errors("trying a row filter"), conn.transaction(force_rollback=True):
            conn.execute(_SHORT_WAIT)
            for statement in statements:
                conn.execute(sql.SQL(statement), binary=True)
    except CdcError as error:
        return refusal_of(error)  # a right that is missing, or a lock, is told where it matters
    return ""


def filter_commands(state: PublicationState, table: TableInfo) -> list[str]:
    """Returns the commands that give a table its condition in a publication, as its row filter."""
    publication, add = quoted(state.name), _only([table])
    alter = [f"ALTER PUBLICATION {publication} ADD TABLE {add};"]
    if table.qualified_name in state.tables:
        alter.insert(0, f"ALTER PUBLICATION {publication} DROP TABLE ONLY {table.quoted_name};")
    return alter


def creation_command(name: str, mode: Mode, tables: Sequence[TableInfo]) -> str:
    """Returns the command that makes the publication as the bridge wants it."""
    scope = "ALL TABLES" if mode == "all_tables" else f"TABLE {_only(tables)}"
    return f"CREATE PUBLICATION {quoted(name)} FOR {scope} WITH (publish_via_partition_root = true);"


def alteration_command(name: str, tables: Sequence[TableInfo]) -> str:
    """Returns the command that makes an existing publication carry exactly these tables."""
    return f"ALTER PUBLICATION {quoted(name)} SET TABLE {_only(tables)};"


def has_column_list(state: PublicationState, table: TableInfo) -> bool:
    """Whether the publication carries not all columns of a table."""
    return not set(table.columns) <= state.columns.get(table.qualified_name, frozenset(table.columns))


def why_unfit(state: PublicationState, *, mode: Mode, tables: Sequence[TableInfo]) -> SourceRefused | None:
    """Returns why the publication does not fit and we must not change it, with the remedy; None when it fits."""
    why = _reason_and_remedy(state, mode, tables)
    return None if why is None else SourceRefused(f"publication {state.name} {why[0]}", remedy=why[1])


def _reason_and_remedy(state: PublicationState, mode: Mode, tables: Sequence[TableInfo]) -> tuple[str, str] | None:
    publication = quoted(state.name)
    absent = [operation for operation in _OPERATIONS if operation not in state.operations]
    if absent:
        return (
            f"leaves out {', '.join(absent)}: the topics would not follow the tables",
            f"ALTER PUBLICATION {publication} SET (publish = '{', '.join(_OPERATIONS)}');",
        )
    if not state.via_root and any(table.kind == "p" for table in tables):
        return (
            "names partitions one by one instead of their root",
            f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true);",
        )
    missing = [table for table in tables if table.qualified_name not in state.tables]
    if mode == "all_tables" and not state.all_tables:
        return (
            "is not FOR ALL TABLES, as source.publication_mode demands",
            f"DROP PUBLICATION {publication};  -- it is made anew; or set source.publication_mode: filtered",
        )
    if mode == "filtered" and state.all_tables:
        return (
            "is FOR ALL TABLES, which cannot be narrowed to source.tables",
            f"DROP PUBLICATION {publication};  -- it is made anew; or set source.publication_mode: disabled",
        )
    ours = (each for each in tables if each.condition is not None and not has_column_list(state, each))
    own = {each.qualified_name for each in ours}
    if mode == "filtered" and missing and (foreign := state.narrowed - own):
        return (
            f"misses {_names(missing)}; setting its tables anew would drop the column "
            f"lists and row filters of {', '.join(sorted(foreign))}",
            f"ALTER PUBLICATION {publication} ADD TABLE {_only(missing)};",
        )
    if mode == "disabled" and missing:
        return (
            f"misses {_names(missing)}",
            f"ALTER PUBLICATION {publication} ADD TABLE {_only(missing)};",
        )
    return _uncovered(state, tables)


def _uncovered(state: PublicationState, tables: Sequence[TableInfo]) -> tuple[str, str] | None:
    """Returns a complaint about a column list that lacks key columns; under FULL identity all columns are the key."""
    for table in tables:
        listed = state.columns.get(table.qualified_name)
        identity = table.columns if table.replica_identity is ReplicaIdentity.FULL else table.key
        lacking = [column for column in identity if listed is not None and column not in listed]
        if listed is not None and lacking:
            publication = quoted(state.name)
            whole = ", ".join(quoted(column) for column in table.columns if column in listed or column in lacking)
            return (
                f"has a column list for {table.qualified_name} without {', '.join(lacking)}, "
                "which identify its rows: PostgreSQL refuses UPDATE and DELETE, and there would be no key",
                f"ALTER PUBLICATION {publication} DROP TABLE {table.quoted_name}; "
                f"ALTER PUBLICATION {publication} ADD TABLE {table.quoted_name} ({whole});",
            )
    return None


def _filtered_otherwise(
    conn: psycopg.Connection[Any], state: PublicationState, tables: Sequence[TableInfo]
) -> list[TableInfo]:
    """Returns the tables that the publication carries, but not with their conditions."""
    carried = (each for each in tables if each.qualified_name in state.tables)
    return [each for each in carried if not applies(conn, state.name, each)]


def _alter(
    conn: psycopg.Connection[Any], state: PublicationState, tables: Sequence[TableInfo], unlike: Sequence[TableInfo]
) -> None:
    """Alter the publication with ADD TABLE if possible: SET TABLE would wait for locks on tables it carries already."""
    missing = [table for table in tables if table.qualified_name not in state.tables]
    if state.tables <= {table.qualified_name for table in tables} and not state.has_unreadable:
        for table in unlike:
            _run(conn, f"filtering {table.qualified_name} in {state.name}", filter_commands(state, table), [table])
        try:
            if missing:
                _add_together(conn, state.name, missing)
            return
        except CdcError as error:
            if not isinstance(error.__cause__, sqlstate.DuplicateObject):  # somebody else just added one of them
                raise
    _run(conn, f"altering publication {state.name}", [alteration_command(state.name, tables)], tables)


def _add_together(conn: psycopg.Connection[Any], name: str, tables: Sequence[TableInfo]) -> None:
    """Add tables with one command, or else one by one, so that a locked table does not keep the others out."""
    try:
        _add(conn, name, tables)
        return
    except SourceLocked:
        if len(tables) == 1:
            raise
    locked: SourceLocked | None = None
    for table in tables:
        try:
            add_table(conn, name, table)
        except SourceLocked as error:
            locked = error
    if locked is not None:
        raise locked


def _add(conn: psycopg.Connection[Any], name: str, tables: Sequence[TableInfo]) -> None:
    statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {_only(tables)};"
    _run(conn, f"altering publication {name}", [statement], tables)


def _run(conn: psycopg.Connection[Any], doing: str, statements: Sequence[str], tables: Sequence[TableInfo]) -> None:
    """Run statements that lock every table that they name, all or none; DDL may hold one of the tables for hours."""
    with (
        naming_locks(conn, [table.oid for table in tables], "ShareUpdateExclusiveLock"),
        source_errors(doing, remedy=f"{' '.join(statements)}  -- as a superuser"),
        conn.transaction(),
    ):
        conn.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'")
        for statement in statements:
            conn.execute(sql.SQL(statement), binary=True)  # a condition is in it, and this takes one statement only


def _only(tables: Sequence[TableInfo]) -> str:
    # Without ONLY, tables that inherit from this one would come along uninvited
    return ", ".join(f"ONLY {table.quoted_name}{_where(table)}" for table in tables)


def _where(table: TableInfo) -> str:
    return f" WHERE {in_parentheses(table.condition)}" if table.condition else ""


def _names(tables: Sequence[TableInfo]) -> str:
    return ", ".join(table.qualified_name for table in tables)
