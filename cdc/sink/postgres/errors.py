"""What the replica's refusals mean: try again later, ask the operator, or stop one table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg
import sqlalchemy.exc

from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.contract.ports import TableRejected

_READ_ONLY: Final = "25006"
_AGAIN: Final = (
    "08",  # connection exception
    "40",  # transaction rollback: deadlock, serialization
    "53",  # insufficient resources: disk full, too many connections
    "55006",  # object in use
    "55P03",  # a lock could not be had
    "57",  # operator intervention: shutdown, cancelled query
    "58",  # system error
    _READ_ONLY,  # a standby, or a failover in progress
)
"""Prefixes of SQLSTATEs that do not blame the data. https://www.postgresql.org/docs/current/errcodes-appendix.html"""

ELSEWHERE: Final = "point sink.dsn at a server that takes writes: target_session_attrs=read-write"
"""The remedy when a replica is read-only and stays so."""

REPLICA_AWAY: Final = (
    "cdc tries again by itself; if that does not help: is the server up, and are sink.dsn's host and port right?"
)
"""The remedy for every error that an outage causes: one text, because errors with the same remedy are logged once."""

_SERVER_LACKS: Final = {
    "53100": "make room on the replica's disk: the sink goes on by itself",
    "53300": "raise max_connections of the replica, or end sessions there: the sink goes on by itself",
    _READ_ONLY: ELSEWHERE,
}
"""Remedies for errors that the server reports and that a retry alone does not cure."""

_CHECK: Final = "run `cdc check`: it says what the role lacks in the replica; the server's log may say more"


class CutRejected(TableRejected):
    """A constraint rejects rows together, at the end of a cut. The arguments become the attributes of these names."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(
            topic,
            reason,
            remedy="a table that is loading, catching up or stopped may not match the others yet: restart the sink "
            "when all others are exact; or switch constraints off for the sink's role: "
            "ALTER ROLE … SET session_replication_role = replica;",
        )


class RowsForbidden(TableRejected):
    """The sink's role may not write to a replica table; ``grants`` are the commands that give it the right."""

    def __init__(self, topic: str, reason: str, grants: str) -> None:
        super().__init__(topic, reason, remedy=f"{grants} -- then restart the sink")


def is_retryable(error: psycopg.Error) -> bool:
    """Returns whether the same work may succeed later."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_AGAIN)


def first_line(error: BaseException) -> str:
    """Returns the first line of the server's message, with its detail if there is one."""
    detail = error.diag.message_detail if isinstance(error, psycopg.Error) else None
    lines = str(error).strip().splitlines()
    message = lines[0] if lines else type(error).__name__
    return f"{message} ({detail})" if detail else message


@contextlib.contextmanager
def replica_errors(doing: str, *, remedy: str = "") -> Iterator[None]:
    """Translates what psycopg and SQLAlchemy raise inside the block.

    Args:
        doing: completes "the replica failed at …", for instance ``creating the sink's tables``.
        remedy: what the operator does when the replica refuses.

    Raises:
        ReplicaUnavailable: the connection was lost, or the work may succeed later.
        ReplicaRefused: the server refuses for good.
    """
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        cause = error.orig if isinstance(error.orig, psycopg.Error) else None
        raise _translated(cause or error, doing, remedy) from error
    except psycopg.Error as error:
        raise _translated(error, doing, remedy) from error


def _translated(error: Exception, doing: str, remedy: str) -> ReplicaRefused | ReplicaUnavailable:
    text = f"the replica failed at {doing}: {first_line(error)}"
    if isinstance(error, psycopg.Error) and not is_retryable(error):
        return ReplicaRefused(text, remedy=remedy or _CHECK)
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return ReplicaUnavailable(text, remedy=_SERVER_LACKS.get(sqlstate or "", REPLICA_AWAY))
