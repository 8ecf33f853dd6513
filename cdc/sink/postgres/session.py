"""Connections to the replica: their fixed settings, and the lock that allows only one sink per name.

They come from a SQLAlchemy engine on psycopg: SQLAlchemy describes tables, psycopg carries rows.
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
    # Keeps a batch in the staging table in memory
    "temp_buffers": "32MB",
    # Makes the server look up staged keys in the replica table's index. Without statistics of the staging table it
    # takes the few keys for thousands, and would read a whole table of some hundred thousand rows at each cut
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
"""Settings of every session. ``session_replication_role`` is not one of them: the operator decides about triggers and
foreign keys of replica tables."""

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
"""Errors of a connection attempt that no retry cures, with their remedies. libpq gives no SQLSTATE, only words. Names
in the remedies are quoted."""


def replica_engine(
    connection: Mapping[str, str],
    *,
    application_name: str,
    meet: Callable[[psycopg.Connection[Any]], None] = lambda _: None,
) -> sa.Engine:
    """Returns an engine that opens a new connection each time, with ``PINNED_SETTINGS``.

    Args:
        connection: arguments for ``psycopg.conninfo.make_conninfo``, from the configuration.
        application_name: what ``pg_stat_activity`` shows, unless the configuration says otherwise.
        meet: called with each new connection.
    """

    def connect() -> psycopg.Connection[Any]:
        session = replica_session(connection, application_name)
        meet(session)
        return session

    # No pool, so a returned connection is closed and needs no reset. SQLAlchemy would try to reset it all the same, and
    # log a traceback for each connection that was lost in an outage.
    return sa.create_engine(
        "postgresql+psycopg://", creator=connect, poolclass=sa.pool.NullPool, pool_reset_on_return=None
    )


def try_lock(connection: sa.Connection, name: str) -> bool:
    """Becomes the one sink of this name for as long as the session lives. Returns False if another session is.

    The session that holds the lock also writes the rows. So a sink that has lost its session cannot write any more when
    the next one begins.
    """
    return bool(
        connection.scalar(sa.text("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))"), {"key": lock_key(name)})
    )


def lock_key(name: str) -> str:
    """Returns the text from which the lock of the one sink of this name is made."""
    return f"cdc sink {name}"


def lock_holder(connection: sa.Connection, name: str) -> int | None:
    """Returns the pid of the session that holds the lock of ``try_lock``, or None. Does not take the lock."""
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
    """Returns psycopg's connection beneath SQLAlchemy's, in the same transaction, for COPY and for psycopg's SQL."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)  # typed Any | None


def is_database(connection: sa.Connection, source: SourceIdentity) -> bool:
    """Returns whether we are connected to the source itself. Failovers change the timeline, so it is not compared."""
    system, database = connection.execute(
        sa.text(
            "SELECT (SELECT system_identifier::text FROM pg_control_system()), "
            "(SELECT oid::bigint FROM pg_database WHERE datname = current_database())"
        )
    ).one()
    return (system, database) == (source.system_identifier, source.database_oid)


def describe(connection: Mapping[str, str]) -> str:
    """Returns ``user@host:port/database`` for messages, without the password."""
    return address(keywords_of(connection, _SETTING))


def replica_session(connection: Mapping[str, str], application_name: str) -> psycopg.Connection[Any]:
    """Opens a connection with ``PINNED_SETTINGS``. The arguments are those of ``replica_engine``."""
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
        # Each batch is planned anew: staging tables have no statistics, and their size varies from batch to batch.
        with told(f"the replica at {where}", "to let us connect", patience(keywords)):
            session = psycopg.connect(conninfo, prepare_threshold=None)
        session.execute(LATER)
        session.commit()
        return session
    except psycopg.OperationalError as error:
        # "from None": psycopg's exception refers to the failed connection, which holds the password
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
