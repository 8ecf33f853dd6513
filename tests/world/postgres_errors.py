"""Errors as psycopg raises them when the server refuses a statement."""

from __future__ import annotations

from typing import TypeVar

import psycopg
from psycopg.pq import DiagnosticField

E = TypeVar("E", bound=psycopg.Error)


def failure(kind: type[E], message: str) -> E:
    """Returns the error of a SQLSTATE with the server's words."""
    state = (kind.sqlstate or "").encode()
    told: dict[int, bytes | None] = {DiagnosticField.MESSAGE_PRIMARY: message.encode(), DiagnosticField.SQLSTATE: state}
    return kind(message, info=told)


def lost(message: str = "server closed the connection unexpectedly") -> psycopg.OperationalError:
    """Returns the error of a connection that broke, which has no SQLSTATE."""
    return psycopg.OperationalError(message)
