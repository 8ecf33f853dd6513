"""Row filters: whether PostgreSQL can apply a condition to a table's changes, and whether a publication applies it.

PostgreSQL has two rules for a row filter, and checks them at different moments. It refuses an expression that is not
immutable when the publication is altered. But it does not check there whether the replica identity has the columns that
the filter needs: it refuses the application's UPDATEs and DELETEs instead. So that is checked here, before anything is
altered.

Two conditions are compared as the planner prints them, because a publication keeps an expression and not its text. Both
are parsed on the same connection, so that names and constants mean the same. That takes no right but to read the table.

https://www.postgresql.org/docs/current/logical-replication-row-filter.html
"""

from __future__ import annotations

import json
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from cdc.base.errors import CdcError
from cdc.bridge.source.condition import OF_A_CONDITION, in_parentheses
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.sqlstates import message_of, result_error, sqlstate_of
from cdc.bridge.source.table import TableInfo, Unusable, quoted
from cdc.contract.change import ReplicaIdentity
from cdc.contract.record import RowRule

_FILTERS_SINCE: Final = 150000
_NOT_GRANTED: Final = "42501"


def filter_of(conn: psycopg.Connection[Any], publication: str, table: int) -> RowRule | None:
    """Returns the row filter that a publication applies to a table; None if it publishes all rows, or not the table.

    Printing a filter waits for locks on the table.

    Args:
        conn: a connection with the pinned settings.
        publication: its name.
        table: the table's oid.

    Raises:
        SourceBusy: somebody has locked the table, and the connection has a limit for such waits.
        SourceUnavailable: the connection broke.
    """
    if conn.info.server_version < _FILTERS_SINCE:
        return None
    with source_errors("reading the row filter of a publication"):
        row = conn.execute(_FILTER, (publication, table)).fetchone()
    return None if row is None else RowRule(*row)


def why_not_filtered(conn: psycopg.Connection[Any], info: TableInfo) -> Unusable | None:
    """Returns why PostgreSQL cannot publish a table by its condition, with the remedy; None when it can.

    Raises:
        SourceBusy: somebody has locked the table, and the connection has a limit for such waits.
        SourceUnavailable: the connection broke.
        SourceRefused: our role may not read the table.
    """
    if info.condition is None:
        return None
    name = f"table {info.qualified_name}"
    if conn.info.server_version < _FILTERS_SINCE:
        return Unusable(
            f"{name} has a condition in source.rows, and PostgreSQL filters rows from version 15 on only",
            "upgrade the server, or take the condition out of source.rows",
        )
    if info.kind == "p" and not info.leaves:
        return Unusable(f"{name} has a condition in source.rows, and no partition to read yet", "create a partition")
    if said := _complaint(conn, info, info.condition, None):
        return Unusable(
            f"{name} cannot be filtered by source.rows: {said[1]}",
            "write what would follow WHERE, with columns of this table by their names alone, for instance "
            "region = 'eu'",
        )
    if info.replica_identity is ReplicaIdentity.FULL:
        return None
    identity = _identity_columns(conn, info)
    if not (said := _complaint(conn, info, info.condition, identity)):
        return None
    others = [each for each in info.columns if each not in identity]
    needed = [each for each in others if _complaint(conn, info, info.condition, {*info.columns} - {each})]
    return Unusable(
        f"{name} has a condition in source.rows on {', '.join(needed) or 'columns'}, outside of its replica identity "
        f"({', '.join(sorted(identity)) or 'none'}): PostgreSQL would refuse the application's UPDATEs and DELETEs",
        " ".join(f"ALTER TABLE {each} REPLICA IDENTITY FULL;" for each in _with_leaves(info))
        + "  -- or USING INDEX a unique index that has these columns, too, all NOT NULL",
    )


def is_same_condition(conn: psycopg.Connection[Any], info: TableInfo, one: str, other: str) -> bool:
    """Whether two conditions on a table are the same expression, however they are written.

    Raises:
        SourceBusy: somebody has locked the table, and the connection has a limit for such waits.
        SourceUnavailable: the connection broke.
    """
    printed = [_planned(conn, info, each) for each in (one, other)]
    return printed[0] is not None and printed[0] == printed[1]


def applies(conn: psycopg.Connection[Any], publication: str, info: TableInfo) -> bool:
    """Whether a publication applies a table's condition, or no row filter if the condition is empty."""
    if info.condition is None:
        return True
    found = filter_of(conn, publication, info.oid)
    if found is None or not info.condition:
        return found is None and not info.condition
    return is_same_condition(conn, info, found.condition, info.condition)


def is_carried_whole(conn: psycopg.Connection[Any], publication: str, table: int) -> bool:
    """Whether a publication carries a table with all others, or with its schema, where no row filter counts."""
    if conn.info.server_version < _FILTERS_SINCE:
        return False
    with source_errors("reading publications"):
        return conn.execute(_CARRIED_WHOLE, (table, publication)).rowcount > 0


def refusal_of(error: CdcError) -> str:
    """Returns PostgreSQL's words if it has refused a row filter for what its condition says; else an empty text."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error):
        return ""
    if not _is_of_condition(cause.sqlstate or ""):
        return ""
    detail = f": {cause.diag.message_detail}" if cause.diag.message_detail else ""
    return f"{cause.diag.message_primary}{detail}"


def _complaint(
    conn: psycopg.Connection[Any], info: TableInfo, condition: str, columns: set[str] | None
) -> tuple[str, str] | None:
    """Returns SQLSTATE and words of the server if a condition is not one on these columns of a table (None: all)."""
    shown = "*" if columns is None else ", ".join(map(quoted, sorted(columns)))
    # Under a name of its own, so that nothing but the columns can be meant: neither the row as a whole, nor the table.
    # In parentheses and in brackets, as in ``condition``: what passes twice is one expression
    rows = f"(SELECT {shown} FROM ONLY {info.quoted_name}) AS filtered_row"
    for query in (
        f"SELECT FROM {rows} WHERE {in_parentheses(condition)}",
        f"SELECT ARRAY[{condition}\n] FROM {rows}",
    ):
        result = conn.pgconn.prepare(b"", query.encode())
        state = sqlstate_of(result) or ""
        if result.status == pq.ExecStatus.COMMAND_OK:
            if conn.pgconn.describe_prepared(b"").nparams:
                return "42P02", "it has a parameter"
        elif _is_of_condition(state):
            return state, message_of(result)
        else:
            raise result_error(f"reading the condition on {info.qualified_name}", result)
    return None


def _planned(conn: psycopg.Connection[Any], info: TableInfo, condition: str) -> str | None:
    """Returns a condition as the planner prints it; None if it is not one on this table (any more)."""
    query = f"EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) SELECT {in_parentheses(condition)} FROM ONLY {info.quoted_name}"
    result = conn.pgconn.exec_params(query.encode(), None)
    if result.status == pq.ExecStatus.TUPLES_OK:
        return json.dumps(json.loads(result.get_value(0, 0) or b"")[0]["Plan"]["Output"])
    if _is_of_condition(sqlstate_of(result) or ""):
        return None
    raise result_error(f"comparing the row filter of {info.qualified_name}", result)


def _is_of_condition(state: str) -> bool:
    return state.startswith(OF_A_CONDITION) and state != _NOT_GRANTED


def _identity_columns(conn: psycopg.Connection[Any], info: TableInfo) -> set[str]:
    with source_errors("reading the catalog"):
        rows = conn.execute(sql.SQL(_IDENTITY), (info.oid,)).fetchall()
    return {name for (name,) in rows}


def _with_leaves(info: TableInfo) -> list[str]:
    return [info.quoted_name, *(quoted(*leaf) for leaf in info.leaves)]


_FILTER: Final = """
SELECT pg_catalog.pg_get_expr(r.prqual, r.prrelid), r.oid::bigint
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
WHERE p.pubname = %s AND r.prrelid = %s AND r.prqual IS NOT NULL AND NOT p.puballtables AND NOT EXISTS (
  SELECT FROM pg_catalog.pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)
"""

_CARRIED_WHOLE: Final = """
SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_class c ON c.oid = %s
WHERE p.pubname = %s AND (p.puballtables OR EXISTS (
  SELECT FROM pg_catalog.pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace))
"""

_IDENTITY: Final = """
SELECT a.attname::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid
  AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])
WHERE c.oid = %s
"""
