"""Says, in one place, what an SQLSTATE means for us: try again, look at the table again, or ask the operator.

Pure. https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from typing import Final

from psycopg import pq

from cdc.base.errors import CdcError, SourceAltered, SourceBusy, SourceRefused, SourceUnavailable

# The first list that contains a prefix of the SQLSTATE decides, so exceptions to a class come before it.
_PROTOCOL_VIOLATION: Final = "08P01"  # our own mistake, although its class is the network's: no retry helps
_DAMAGED: Final = ("XX001", "XX002")
_LOST: Final = (
    "08",  # connection exception
    "25P03",  # idle_in_transaction_session_timeout
    "25P04",  # transaction_timeout
    "57P",  # the server stops, starts or crashed, idle_session_timeout
)
_BUSY: Final = (
    "40",  # deadlock, serialization, recovery conflict on a standby
    "53",  # out of memory, disk or connections
    "55006",  # object in use
    "55P03",  # lock_timeout
    "57014",  # cancelled: statement_timeout, an administrator
    "58",  # system error: a file could not be read
    "XX000",  # an object dropped while it was looked up ("cache lookup failed")
)
_ALTERED: Final = (
    "3F000",  # no such schema
    "42703",  # no such column
    "42704",  # no such type
    "42883",  # no such operator: a column has another type
    "42P01",  # no such table
)
_NOT_GRANTED: Final = "42501"
SERVER_AWAY: Final = (
    "cdc tries again by itself; if that does not help: is the server up, and are source.dsn's host and port right?"
)
"""The remedy for everything that an outage causes, from the first connection that breaks to the last that is refused.
It is the same text everywhere, because the log recognises an outage by its remedy, and reports it once."""
_WAIT: Final = "cdc tries again by itself; if that does not help, the server's log says what was in the way"
_CHECK: Final = "run `cdc check`: it says what the role and the server lack; the server's log may say more"
_LOOK_AGAIN: Final = "cdc looks at the table again by itself; if that does not help, run `cdc check`"
_REMEDIES: Final = {
    "22021": "a name or a value there is not UTF-8, which a SQL_ASCII database lets in: correct it. Names: "
    "SELECT attrelid::regclass, attname FROM pg_attribute "
    "WHERE attnum > 0 AND attrelid::regclass || attname::text ~ '[^ -~]';",
    "25006": "point source.dsn at the primary: target_session_attrs=read-write",
}
"""Remedies for refusals that no grant would help."""


def source_error(doing: str, sqlstate: str | None, said: str, *, remedy: str = "", role: str = "") -> CdcError:
    """Returns the error that the server's words amount to.

    Args:
        doing: completes "PostgreSQL cancelled …", for instance ``reading the catalog``.
        sqlstate: the SQLSTATE; None when the connection broke without one.
        said: the server's words.
        remedy: the command that grants the missing privilege.
        role: our role, quoted for SQL, for the remedy against row-level security.
    """
    words = " ".join(said.split())
    if not sqlstate or (sqlstate.startswith(_LOST) and sqlstate != _PROTOCOL_VIOLATION):
        return SourceUnavailable(
            f"PostgreSQL went away while {doing}: {words or 'the connection broke'}", remedy=SERVER_AWAY
        )
    if sqlstate.startswith(_DAMAGED):
        return SourceRefused(
            f"PostgreSQL reports damage while {doing}: {words}",
            remedy="restore the damaged data: no retry can read it",
        )
    if sqlstate.startswith(_BUSY):
        return SourceBusy(f"PostgreSQL cancelled {doing}: {words}", remedy=_WAIT)
    if sqlstate.startswith(_ALTERED):
        return SourceAltered(f"PostgreSQL does not find what {doing} needs: {words}", remedy=_LOOK_AGAIN)
    if sqlstate == _NOT_GRANTED and "row-level security" in words and role:
        return SourceRefused(f"PostgreSQL refuses {doing}: {words}", remedy=f"ALTER ROLE {role} BYPASSRLS;")
    if sqlstate != _NOT_GRANTED:
        remedy = _REMEDIES.get(sqlstate, "")
    return SourceRefused(f"PostgreSQL refuses {doing}: {words}", remedy=remedy or _CHECK)


def result_error(doing: str, result: pq.abc.PGresult, *, remedy: str = "", role: str = "") -> CdcError:
    """Returns the error for a result of libpq that reports a failure."""
    return source_error(doing, sqlstate_of(result), message_of(result), remedy=remedy, role=role)


def sqlstate_of(result: pq.abc.PGresult) -> str | None:
    """Returns a result's SQLSTATE; None when the server gave none."""
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() or None


def message_of(result: pq.abc.PGresult) -> str:
    """Returns the primary message of a result."""
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b""
    return primary.decode(errors="replace").strip()
