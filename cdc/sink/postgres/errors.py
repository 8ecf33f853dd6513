"""What the replica's refusals mean: try again later, ask the operator, or stop one table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg
import sqlalchemy.exc

from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.contract.ports import StoredRecord, TableRejected

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
"""SQLSTATE beginnings that say nothing against the data. https://www.postgresql.org/docs/current/errcodes-appendix.html"""

ELSEWHERE: Final = "point sink.dsn at a server that takes writes: target_session_attrs=read-write"
"""What helps when a replica is read-only and stays so."""

REPLICA_AWAY: Final = (
    "cdc tries again by itself; if that does not help: is the server up, and are sink.dsn's host and port right?"
)
"""One text for all that an outage causes: it is told by its remedy, and once."""

_SERVER_LACKS: Final = {
    "53100": "make room on the replica's disk: the sink goes on by itself",
    "53300": "raise max_connections of the replica, or end sessions there: the sink goes on by itself",
    _READ_ONLY: ELSEWHERE,
}
"""What helps where the server answers, and trying again alone does not."""

_CHECK: Final = "run `cdc check`: it says what the role lacks in the replica; the server's log may say more"
_SHOWN_KEY_BYTES: Final = 500


class RecordRejected(TableRejected):
    """A record that its replica table does not take; arguments as the attributes are called."""

    def __init__(self, record: StoredRecord, reason: str) -> None:
        key = "without a key" if record.key is None else record.key[:_SHOWN_KEY_BYTES].decode(errors="replace")
        super().__init__(
            record.topic,
            reason,
            record,
            message=f"topic {record.topic!r} partition {record.partition} offset {record.offset} key {key}: {reason}",
            remedy="correct the replica table, or the row in the source so that a newer record replaces this one; "
            "then restart the sink, which tries again",
        )


class CutRejected(TableRejected):
    """Rows that a constraint refuses together, at the end of a cut; arguments as the attributes are called."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(
            topic,
            reason,
            remedy="tables that load, catch up or are stopped do not fit the others yet: restart the sink when all "
            "others are exact, or let it pass: ALTER ROLE … SET session_replication_role = replica;  -- the sink's",
        )


class RowsForbidden(TableRejected):
    """The sink's role may not write a replica table; arguments as the attributes are called, and what is missing."""

    def __init__(self, topic: str, reason: str, grants: str) -> None:
        super().__init__(topic, reason, remedy=f"{grants} -- then restart the sink")


class TableRefused(ReplicaRefused):
    """A replica table cannot be what a relation definition asks for: it stops, the others go on."""


def is_retryable(error: psycopg.Error) -> bool:
    """Whether the same work may succeed later."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_AGAIN)


def first_line(error: BaseException) -> str:
    """The server's message without its context, and its detail where there is one."""
    detail = error.diag.message_detail if isinstance(error, psycopg.Error) else None
    lines = str(error).strip().splitlines()
    message = lines[0] if lines else type(error).__name__
    return f"{message} ({detail})" if detail else message


@contextlib.contextmanager
def replica_errors(doing: str, *, remedy: str = "") -> Iterator[None]:
    """Translate what psycopg and SQLAlchemy raise inside the block.

    Args:
        doing: completes "the replica …", for instance ``creating the sink's tables``.
        remedy: what the operator does when the replica refuses it.

    Raises:
        ReplicaUnavailable: the connection was lost, or the server asks to try again.
        ReplicaRefused: the server refuses.
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
