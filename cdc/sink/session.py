"""Connections to the replica: pinned settings, and a lock that leaves one sink per name.

A SQLAlchemy engine on psycopg: SQLAlchemy describes tables, psycopg carries rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo

from cdc.errors import ReplicaRefused, ReplicaUnavailable
from cdc.pgaddress import DEFAULTS, address, keywords_of
from cdc.pgsettings import LATER, READING, WRITING, startup_options
from cdc.pgtls import tls_remedy
from cdc.record import SourceIdentity
from cdc.sink.errors import REPLICA_AWAY

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
    (("password authentication failed", "no password supplied"), "set sink.password or sink.password_file"),
    (("pg_hba.conf",), "allow this user and address in pg_hba.conf, then: SELECT pg_reload_conf();"),
    (("permission denied for database",), 'GRANT CONNECT ON DATABASE "{dbname}" TO "{user}";'),
    (("is not permitted to log in",), 'ALTER ROLE "{user}" LOGIN;'),
    (("does not exist",), "correct sink.dsn; or make what is missing, as `cdc grants sink` shows"),
)
"""While connecting, libpq gives words and no SQLSTATE. These no retry will change."""


def replica_engine(connection: Mapping[str, str], *, application_name: str) -> sa.Engine:
    """An engine that makes a new connection each time, with the pinned settings.

    Args:
        connection: arguments for ``psycopg.conninfo.make_conninfo`` from the configuration.
        application_name: what ``pg_stat_activity`` shows, unless the configuration says otherwise.
    """

    def connect() -> psycopg.Connection[Any]:
        return _connect(connection, application_name)

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
        connection.scalar(
            sa.text("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))"), {"key": f"cdc sink {name}"}
        )
    )


def is_locked(connection: sa.Connection, name: str) -> bool:
    """Whether a sink of this name holds the lock that ``try_lock`` takes; without touching it."""
    return bool(
        connection.scalar(
            sa.text(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND (classid::bigint << 32 | objid::bigint) = hashtextextended(:key, 0))"
            ),
            {"key": f"cdc sink {name}"},
        )
    )


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


def _connect(connection: Mapping[str, str], application_name: str) -> psycopg.Connection[Any]:
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
        session = psycopg.connect(conninfo, prepare_threshold=None)
        session.execute(LATER)
        session.commit()
        return session
    except psycopg.OperationalError as error:
        # "from None": the failed connection hangs on the exception and holds the password
        raise _connect_error(where, " ".join(str(error).split()), user=user, dbname=dbname) from None


def _connect_error(where: str, said: str, **names: str) -> ReplicaRefused | ReplicaUnavailable:
    if tls := tls_remedy(said, _SETTING):
        return ReplicaRefused(f"the replica refuses {where}: {said}", remedy=tls)
    for words, remedy in _REFUSALS:
        if any(word in said for word in words):
            return ReplicaRefused(f"the replica refuses {where}: {said}", remedy=remedy.format(**names))
    return ReplicaUnavailable(
        f"cannot reach the replica as {where}: {said}",
        remedy=REPLICA_AWAY,
    )
