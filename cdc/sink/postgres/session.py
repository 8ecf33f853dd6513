"""Connections to the replica: pinned settings, and a lock that leaves one sink per name.

A SQLAlchemy engine on psycopg: SQLAlchemy describes tables, psycopg carries rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo

from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.base.long_wait import told
from cdc.base.pgaddress import DEFAULTS, address, keywords_of, patience
from cdc.base.pgsettings import LATER, READING, WRITING, startup_options
from cdc.base.pgtls import tls_remedy
from cdc.contract.pgtypes import quote_identifier
from cdc.contract.record import SourceIdentity
from cdc.sink.postgres.errors import REPLICA_AWAY

PINNED_SETTINGS: Final[Mapping[str, str]] = {
    **READING,
    **WRITING,
    # a batch of rows on its way through the staging table stays in memory
    "temp_buffers": "32MB",
    # staged keys are looked up in the replica table's index: the server does not know how few they are, takes them for
    # thousands, and would read the whole of a table of some hundred thousand rows at each cut
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
"""Triggers and foreign keys of replica tables are the operator's: ``session_replication_role`` stays as it is."""

_SETTING: Final = "sink.dsn"

_REFUSALS: Final = (
    (
        ("password authentication failed", "no password supplied"),
        "put the right password into CDC_SINK__PASSWORD, PGPASSWORD or ~/.pgpass, or name a file: sink.password_file",
    ),
    (("pg_hba.conf",), "allow this user and address in pg_hba.conf, then: SELECT pg_reload_conf();"),
    (("permission denied for database",), "GRANT CONNECT ON DATABASE {dbname} TO {user};"),
    (("is not permitted to log in",), "ALTER ROLE {user} LOGIN;"),
    (('database "{database}" does not exist',), "CREATE DATABASE {dbname};  -- or correct sink.dsn"),
    (('role "{role}" does not exist',), "CREATE ROLE {user} LOGIN;  -- or correct sink.dsn"),
    (("does not exist",), "correct sink.dsn"),
)
"""While connecting, libpq gives words and no SQLSTATE. These no retry will change. Names in remedies are
quoted."""


def replica_engine(
    connection: Mapping[str, str],
    *,
    application_name: str,
    meet: Callable[[psycopg.Connection[Any]], None] = lambda _: None,
) -> sa.Engine:
    """An engine that makes a new connection each time, with the pinned settings.

    Args:
        connection: arguments for ``psycopg.conninfo.make_conninfo`` from the configuration.
        application_name: what ``pg_stat_activity`` shows, unless the configuration says otherwise.
        meet: told of each connection.
    """

    def connect() -> psycopg.Connection[Any]:
        session = replica_session(connection, application_name)
        meet(session)
        return session

    # No pool, so nothing to reset: a connection that comes back is closed. The pool would try, and log each one that an
    # outage took as an error with its traceback.
    return sa.create_engine(
        "postgresql+psycopg://", creator=connect, poolclass=sa.pool.NullPool, pool_reset_on_return=None
    )


def try_lock(connection: sa.Connection, name: str) -> bool:
    """Become the one sink of this name, for as long as the session lives.

    The lock and the rows travel over one session: a sink that lost its session cannot write beside the next one.
    """
    return bool(
        connection.scalar(sa.text("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))"), {"key": lock_key(name)})
    )


def lock_key(name: str) -> str:
    """What the lock of the one sink of this name is made of."""
    return f"cdc sink {name}"


def lock_holder(connection: sa.Connection, name: str) -> int | None:
    """The session that holds the lock which ``try_lock`` takes, without touching it; None when nobody does."""
    pid: int | None = connection.scalar(
        sa.text(
            "SELECT min(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND (classid::bigint << 32 | objid::bigint) = hashtextextended(:key, 0)"
        ),
        {"key": lock_key(name)},
    )
    return pid


def psycopg_of(connection: sa.Connection) -> psycopg.Connection[Any]:
    """psycopg's connection beneath SQLAlchemy's, in the same transaction: for COPY, and for SQL as psycopg takes it."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)  # typed Any | None


def is_database(connection: sa.Connection, source: SourceIdentity) -> bool:
    """Whether we are connected to the source database itself; a failover in between changes nothing of that."""
    system, database = connection.execute(
        sa.text(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()), "
            "(SELECT oid::bigint FROM pg_database WHERE datname = current_database())"
        )
    ).one()
    return (system, database) == (source.system_identifier, source.database_oid)


def describe(connection: Mapping[str, str]) -> str:
    """``user@host:port/database``, for people; never a secret."""
    return address(keywords_of(connection, _SETTING))


def replica_session(connection: Mapping[str, str], application_name: str) -> psycopg.Connection[Any]:
    """A connection with the pinned settings; arguments as for ``replica_engine``."""
    keywords = keywords_of(connection, _SETTING)
    conninfo = make_conninfo(
        **{
            **DEFAULTS,
            "application_name": application_name,
            **keywords,
            "client_encoding": "UTF8",
            "options": f"{keywords.get('options', '')} {startup_options(PINNED_SETTINGS)}".strip(),
        }
    )
    where, user, dbname = address(keywords), keywords.get("user", "…"), keywords.get("dbname", "…")
    try:
        # Plans are made for each batch: staging tables have no statistics and every size.
        with told(f"the replica at {where}", "to let us connect", patience(keywords)):
            session = psycopg.connect(conninfo, prepare_threshold=None)
        session.execute(LATER)
        session.commit()
        return session
    except psycopg.OperationalError as error:
        # "from None": the failed connection hangs on the exception and holds the password
        raise _connect_error(where, " ".join(str(error).split()), user=user, dbname=dbname) from None


def _connect_error(where: str, said: str, *, user: str, dbname: str) -> ReplicaRefused | ReplicaUnavailable:
    if tls := tls_remedy(said, _SETTING):
        return ReplicaRefused(f"the replica refuses {where}: {said}", remedy=tls)
    for words, remedy in _REFUSALS:
        if any(word.format(database=dbname, role=user) in said for word in words):
            command = remedy.format(user=quote_identifier(user), dbname=quote_identifier(dbname))
            return ReplicaRefused(f"the replica refuses {where}: {said}", remedy=command)
    return ReplicaUnavailable(
        f"cannot reach the replica as {where}: {said}",
        remedy=REPLICA_AWAY,
    )
