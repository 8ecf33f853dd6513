"""Checks an SQL condition that somebody wrote, on its way into a query: it must be one expression and nothing more.

It comes from the command line, and through the progress topic from whoever may write there. It is sent by the extended
protocol, which takes a single statement, in a read-only transaction, in a session that ends with it. One risk remains:
a condition can call every function that our role may call.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import pq

from cdc.base.errors import ConfigError
from cdc.base.table_names import qualified
from cdc.bridge.source.sqlstates import message_of, result_error, sqlstate_of
from cdc.bridge.source.table import quoted

OF_A_CONDITION: Final = ("22", "42", "0A", "25006")
"""Classes of SQLSTATEs that are the condition's own fault: its values, its words, or what it may not do."""


def in_parentheses(condition: str) -> str:
    """Returns a condition to be put into a query. A newline keeps a comment at its end from swallowing the rest."""
    return f"({condition}\n)" if "--" in condition else f"({condition})"


def check_condition(conn: psycopg.Connection[Any], namespace: str, name: str, where: str) -> None:
    """Let the server parse the condition, once in parentheses and once in brackets. Preparing it runs nothing.

    Text that closes one kind of bracket, to go on after it, does not close the other kind. So what passes twice is
    complete in itself: one expression, wherever it is put.

    Raises:
        ConfigError: it is not a condition on this table; says so in the server's words.
        SourceUnavailable: the connection broke.
    """
    table = quoted(namespace, name)
    for query in (f"SELECT FROM {table} WHERE {in_parentheses(where)}", f"SELECT ARRAY[{where}\n] FROM {table}"):
        result = conn.pgconn.prepare(b"", query.encode())
        if result.status == pq.ExecStatus.COMMAND_OK:
            if conn.pgconn.describe_prepared(b"").nparams:
                raise _no_condition(namespace, name, "it has a parameter")
            continue
        if not (sqlstate_of(result) or "").startswith(OF_A_CONDITION):
            raise result_error(f"reading the condition on {qualified(namespace, name)}", result)
        raise _no_condition(namespace, name, message_of(result))


def _no_condition(namespace: str, name: str, why: str) -> ConfigError:
    return ConfigError(
        f"--where is not a condition on {qualified(namespace, name)}: {why}",
        remedy="write what would follow WHERE, for instance: --where \"created_at >= '2024-01-01'\"",
    )
