"""Opens ordinary connections to the source, with pinned session settings, and turns libpq's complaints into our errors.

It takes libpq keywords. It returns an autocommit connection, or raises an error that names who wanted what from which
server, but never the password.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from cdc.base.errors import CdcError, SourceRefused, SourceUnavailable
from cdc.base.long_wait import told
from cdc.base.pgaddress import DEFAULTS, address, keywords_of, patience
from cdc.base.pgtls import tls_remedy
from cdc.bridge.source.sqlstates import SERVER_AWAY, result_error, source_error
from cdc.contract.pgtypes import quote_identifier

PINNED_SETTINGS: Final[Mapping[str, str]] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # money prints by lc_monetary, and regclass and its kin print a schema only when search_path does not reach it
    "lc_monetary": "C",
    "search_path": "pg_catalog",
    # a row hidden by a policy must be an error, because the bridge would take it for deleted
    "row_security": "off",
    # what a role or database limits for its users must not cut a long read off; callers that want a limit set it
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""Session settings that decide how values are printed, the same on the walsender and on every other connection.

Topic contract, version 1: the server's output text is the value. ``client_encoding`` is set as a libpq keyword instead.
"""

_PINNED_LATER: Final = ((170000, b"SET transaction_timeout = 0"),)
"""Settings with the version that introduced them. An older server would refuse a connection that names them."""

LOOK_S: Final = 2
"""How long a mere look at the source waits for a lock: somebody's DDL may hold a table for hours. Catalog queries need
none of these locks; the limit is for the day on which somebody locks the catalog itself.
"""
_SETTING: Final = "source.dsn"

# While connecting, libpq gives no SQLSTATE, only words. These mean that a retry will not help:
_REFUSALS: Final = (
    (
        ("password authentication failed", "no password supplied"),
        "put the right password into CDC_SOURCE__PASSWORD, PGPASSWORD or ~/.pgpass, "
        "or name a file: source.password_file",
    ),
    (
        ("no pg_hba.conf entry", "pg_hba.conf rejects"),
        "add a line for this user, database and address to pg_hba.conf, then: SELECT pg_reload_conf();",
    ),
    (("permission denied for database",), "GRANT CONNECT ON DATABASE {dbname} TO {user};"),
    (("is not permitted to log in",), "ALTER ROLE {user} LOGIN;"),
    (
        ("permission denied to start WAL sender", "must be superuser or replication role"),
        "ALTER ROLE {user} REPLICATION;",
    ),
)


def parameters(connection: Mapping[str, str], *, application_name: str) -> dict[str, str]:
    """Returns the libpq keywords for a connection with the pinned settings.

    Args:
        connection: arguments for ``make_conninfo`` from the configuration. Their ``options`` are kept, but ours follow
            and win.
        application_name: what ``pg_stat_activity`` shows, unless the configuration says otherwise.

    Raises:
        ConfigError: libpq does not understand the keywords.
    """
    keywords = keywords_of(connection, _SETTING)
    pinned = " ".join(f"-c {name}={value}" for name, value in PINNED_SETTINGS.items())
    return {
        **DEFAULTS,
        "application_name": application_name,
        **keywords,
        "client_encoding": "UTF8",
        "options": f"{keywords.get('options', '')} {pinned}".strip(),
    }


def connect(
    connection: Mapping[str, str], *, application_name: str, lock_timeout_s: int = 0, is_walsender: bool = False
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open an autocommit connection with the pinned settings.

    Args:
        connection: arguments for ``make_conninfo`` from the configuration.
        application_name: what ``pg_stat_activity`` shows.
        lock_timeout_s: how long a statement waits for a lock before it fails with ``SourceBusy``; 0 means for ever.
        is_walsender: open it for the replication protocol, which takes no SQL with parameters.

    Raises:
        SourceUnavailable: nobody answers, or the server is not ready.
        SourceRefused: the server answers, but refuses the connection.
        ConfigError: libpq does not understand the connection string.
    """
    keywords = parameters(connection, application_name=application_name)
    if lock_timeout_s:
        keywords["options"] += f" -c lock_timeout={lock_timeout_s}s"
    if is_walsender:
        keywords["replication"] = "database"
    conninfo = make_conninfo(**keywords)
    try:
        with told(f"PostgreSQL at {address(keywords)}", "to let us connect", patience(keywords)):
            conn = psycopg.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        # "from None": the failed connection hangs on the exception and holds the password
        raise connect_error(str(error), connection) from None
    pin_by_version(conn.pgconn)
    return conn


def pin_by_version(pgconn: pq.abc.PGconn) -> None:
    """Pin the settings that only newer servers know, on a new connection, which may be a walsender's.

    Raises:
        SourceUnavailable: the connection broke.
    """
    for since, command in _PINNED_LATER:
        if pgconn.server_version >= since:
            result = pgconn.exec_(command)
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise result_error("preparing the connection", result)


def connect_error(text: str, connection: Mapping[str, str]) -> CdcError:
    """Returns the error that libpq's words at a failed connect mean.

    Only English words are recognised. In another language every refusal looks like an outage, and is retried.
    """
    said = " ".join(text.replace("connection failed:", "").split())
    who, keywords = describe(connection), keywords_of(connection, _SETTING)
    user, dbname = keywords.get("user", "…"), keywords.get("dbname", "…")
    if tls := tls_remedy(said, _SETTING):
        return SourceRefused(f"PostgreSQL refuses {who}: {said}", remedy=tls)
    for words, remedy in _REFUSALS:
        if any(word in said for word in words):
            command = remedy.format(user=quote_identifier(user), dbname=quote_identifier(dbname))
            return SourceRefused(f"PostgreSQL refuses {who}: {said}", remedy=command)
    if f'role "{user}" does not exist' in said:
        return SourceRefused(
            f"PostgreSQL refuses {who}: {said}",
            remedy=f"CREATE ROLE {quote_identifier(user)} LOGIN REPLICATION;",
        )
    if f'database "{dbname}" does not exist' in said:
        return SourceRefused(f"PostgreSQL refuses {who}: {said}", remedy="correct the database name in source.dsn")
    return SourceUnavailable(
        f"cannot reach PostgreSQL as {who}: {said}",
        remedy=SERVER_AWAY,
    )


def describe(connection: Mapping[str, str]) -> str:
    """Returns ``user@host:port/database``, for people; never a secret."""
    return address(keywords_of(connection, _SETTING))


@contextlib.contextmanager
def source_errors(doing: str, *, remedy: str = "") -> Iterator[None]:
    """Translate the errors that psycopg raises inside the block, as ``sqlstates`` says.

    Args:
        doing: completes "PostgreSQL cancelled …", for instance ``reading the catalog``.
        remedy: what an operator should do if the server refuses it for lack of privileges.

    Raises:
        SourceUnavailable: the connection was lost, or the server is stopping.
        SourceBusy: the connection is fine, but the server cancelled the query.
        SourceAltered: something that is asked for does not exist any more.
        SourceRefused: a privilege is missing, or the server refuses for another reason.
    """
    try:
        yield
    except psycopg.Error as error:
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if error.sqlstate is None and not is_lost:
            raise  # psycopg's own complaint, and thus a bug of ours
        raise source_error(doing, error.sqlstate, _first_line(error), remedy=remedy) from error


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
