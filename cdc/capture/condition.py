"""Whether the server understands an SQL condition on a table, asked without running anything."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import pq

from cdc.capture.table import quoted
from cdc.errors import ConfigError


def check_condition(conn: psycopg.Connection[Any], namespace: str, name: str, where: str) -> None:
    """Let the server parse ``… WHERE (where)``; preparing takes one statement only, and runs none.

    Raises:
        ConfigError: it does not understand it; the server's words.
    """
    query = f"SELECT FROM {quoted(namespace, name)} WHERE ({where})"
    result = conn.pgconn.prepare(b"", query.encode())
    if result.status != pq.ExecStatus.COMMAND_OK:
        said = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        raise ConfigError(
            f"--where is no condition on {namespace}.{name}: {said}",
            remedy="write what would follow WHERE, for instance: --where \"created_at >= '2024-01-01'\"",
        )
