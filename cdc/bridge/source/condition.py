"""An SQL condition that somebody wrote, on its way into a query: it must be one expression and nothing more.

It comes from the command line, and through the progress topic from whoever may write there. It goes to the server by
the extended protocol, which takes one statement, in a read-only transaction, in a session that ends with it. What
remains: a condition can call every function that our role can.
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
"""SQLSTATEs that a condition earns: its values, its words, what it may not do."""


def in_parentheses(condition: str) -> str:
    """As a part of a query. A comment at its end must not swallow what follows."""
    return f"({condition}\n)"


def check_condition(conn: psycopg.Connection[Any], namespace: str, name: str, where: str) -> None:
    """Let the server parse the condition, between parentheses and between brackets; preparing runs nothing.

    Text that closes the one bracket to go on behind it does not close the other, so what passes twice is closed in
    itself: one expression, wherever it is put.

    Raises:
        ConfigError: it is no condition on this table; the server's words.
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
