"""Sessions of MariaDB: their fixed settings, what their errors mean, and the lock of the one sink.

The lock is a named lock of the session, and a number that only the newest holder has. The server releases a named lock
when the session ends, and then rolls back what the session had open. So the lock alone is enough on one server. The
number also holds where it is not: if a proxy or a failover gives the session another server, or the driver another
session. Whoever takes the lock raises the number, and each commit of rows looks at it in its own transaction, with a
lock on its row: a session that has lost the lock cannot commit.

https://mariadb.com/kb/en/mariadb-error-code-reference/
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import pymysql
import sqlalchemy as sa

from cdc.base.config.replica_url import ServerUrl
from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.sink.sql.dialect import Blame, Explained

_SETTINGS: Final = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
    # A note that something did exist, say, is not a warning
    "sql_notes = 0, innodb_strict_mode = 1, "
    # The topics already hold what the source's foreign keys did, and tables may be at different moments
    "foreign_key_checks = 0, "
    # Above this, it makes a table of a list, and compares with other types
    "in_predicate_conversion_threshold = 0, "
    # Seconds: how long a statement waits for somebody's lock before the session ends and tries again, and how long the
    # server keeps a session that has nothing to do
    "lock_wait_timeout = 10, innodb_lock_wait_timeout = 10, wait_timeout = 2592000"
)
_PATIENCE_S: Final = 10
_PASSWORD: Final = "put the right password into CDC_SINK__PASSWORD, or name a file: sink.password_file"
_LOCKED: Final = "end the transaction that holds the table or its rows (SHOW PROCESSLIST): the sink goes on by itself"
_ELSEWHERE: Final = "point sink.url at a server that takes writes"
_TLS: Final = "correct ssl_ca, ssl_cert and ssl_key in sink.url"
_BUSY: Final = "raise max_connections, or end other sessions: the sink goes on by itself"
_ROOM: Final = "make room on the server's disk: the sink goes on by itself"

TOO_LARGE: Final = 1153
NO_DATABASE: Final = 1049
_UNSAFE: Final = 1592
"""The binary log by statements might do something else. What the log's readers get is not the sink's to decide."""

_AWAY: Final[Mapping[int, str]] = {
    # The client's own: no connection, or none any more
    **dict.fromkeys((0, 2002, 2003, 2006, 2013, 2014, 2055), ""),
    # The server ends, or ended this session or statement
    **dict.fromkeys((1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 1969), ""),
    **dict.fromkeys((1205, 1213), _LOCKED),
    **dict.fromkeys((1040, 1203, 1226), _BUSY),
    **dict.fromkeys((1020, 1050, 1412), ""),  # somebody else changed the row or table meanwhile
    **dict.fromkeys((1021, 1114), _ROOM),
    **dict.fromkeys((1290, 1836), _ELSEWHERE),
    **dict.fromkeys((5, 1037, 1038, 1041), "give the server more memory; cdc tries again by itself"),
}
_REFUSED: Final[Mapping[int, str]] = {
    **dict.fromkeys((1045, 1698), _PASSWORD),
    2026: _TLS,
    1130: "create the user for this host: MariaDB's users have one",
    2059: "use a user who logs in by a password",
    **dict.fromkeys((1044, 1142, 1143, 1227), ""),  # with the grants
    NO_DATABASE: "",  # with its name
}


OWNER_TABLE: Final = "cdc_owner"

_MAKE: Final = f"""
CREATE TABLE IF NOT EXISTS {OWNER_TABLE} (name VARCHAR(48) PRIMARY KEY, number BIGINT NOT NULL)
ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin
"""
_RAISE: Final = (
    f"INSERT INTO {OWNER_TABLE} (name, number) VALUES (:name, 1) ON DUPLICATE KEY UPDATE number = number + 1"
)
_READ: Final = f"SELECT number FROM {OWNER_TABLE} WHERE name = :name FOR UPDATE"


def open_session(at: ServerUrl, password: str) -> pymysql.Connection[Any]:
    """Opens a session with fixed settings.

    Raises:
        ReplicaRefused: the server is not MariaDB.
    """
    checked = {"ssl_verify_cert": True, "ssl_verify_identity": True} if "ssl_ca" in at.tls else {}
    session = pymysql.connect(
        host=at.host,
        port=at.port,
        user=at.user,
        password=password,
        database=at.database,
        charset="utf8mb4",
        collation="utf8mb4_nopad_bin",
        connect_timeout=_PATIENCE_S,
        **at.tls,
        **checked,
    )
    try:
        if "MariaDB" not in (version := session.get_server_info()):
            raise ReplicaRefused(
                f"the server at {at.host}:{at.port} is MySQL {version}, and cdc knows replicas on MariaDB only",
                remedy="name a server of MariaDB in sink.url",
            )
        with session.cursor() as cursor:
            cursor.execute(_SETTINGS)
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.commit()
    except BaseException:
        session.close()
        raise
    return session


def longest_packet(session: pymysql.Connection[Any]) -> int:
    """Returns how many bytes a statement may have."""
    with session.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        (found,) = cursor.fetchone()
    return int(found)


def refuse_warnings(
    _connection: sa.Connection, cursor: Any, _statement: str, _parameters: Any, _context: Any, _is_many: bool
) -> None:
    """Makes an error of what the server only warns of: that it changed a value, say."""
    if not cursor.warning_count:
        return
    cursor.execute("SHOW WARNINGS")
    for _, code, message in cursor.fetchall():
        if code != _UNSAFE:
            raise pymysql.err.DataError(code, message)


def explained(error: BaseException) -> Explained:
    """Returns what an error of the driver means; one that refuses has no remedy if it depends on the database."""
    if isinstance(error, OSError):
        return Explained(Blame.REFUSED, _TLS)  # the driver opens no other files
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if isinstance(getattr(error, "original_exception", None), ssl.SSLError | FileNotFoundError):
        return Explained(Blame.REFUSED, _TLS)  # with the number of any failure to connect
    if (remedy := _AWAY.get(code)) is not None:
        return Explained(Blame.AWAY, remedy)
    if (remedy := _REFUSED.get(code)) is not None:
        return Explained(Blame.REFUSED, remedy)
    return Explained(Blame.ROWS)


class SessionLock:
    """The lock of the one sink of a name in a database.

    Args:
        connect: opens a session, which only reads.
        database: the database.
        name: the sink's name.
    """

    def __init__(self, connect: Callable[[], sa.Connection], database: str, name: str) -> None:
        self._connect = connect
        self._name = name
        # Names of locks are the whole server's, and have at most 64 characters
        self._lock = f"cdc_sink_{blake2b(f'{database}/{name}'.encode(), digest_size=16).hexdigest()}"
        self._number: int | None = None

    def take(self, connection: sa.Connection) -> bool:
        """Takes the lock until the session ends; returns False while another session has it."""
        got = connection.scalar(sa.text("SELECT GET_LOCK(:lock, 0)"), {"lock": self._lock})
        if got:
            connection.execute(sa.text(_MAKE))
            connection.execute(sa.text(_RAISE), {"name": self._name})
            self._number = connection.scalar(sa.text(_READ), {"name": self._name})
        connection.commit()
        return bool(got)

    def check(self, connection: sa.Connection) -> None:
        """Sees that no other session has taken the lock since. Until the open transaction ends, none can."""
        if self._number is None:
            return
        if connection.scalar(sa.text(_READ), {"name": self._name}) != self._number:
            raise ReplicaUnavailable(
                "another sink of this name has taken over; nothing of the open transaction is left",
                remedy="stop one of the two, or leave this one waiting: it takes over when the other one ends",
            )

    def release(self) -> None:
        """Does nothing to the server, which releases the lock as the session ends."""
        self._number = None

    def is_taken(self) -> bool:
        """Returns whether a session has the lock."""
        with self._connect() as connection:
            return connection.scalar(sa.text("SELECT IS_USED_LOCK(:lock)"), {"lock": self._lock}) is not None
