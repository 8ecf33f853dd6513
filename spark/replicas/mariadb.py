"""Reads a replica in MariaDB, beside a sink that goes on writing to it: InnoDB keeps the rows of one snapshot.

A change of a table's columns meanwhile is an error, and the table is not verified then.

https://mariadb.com/kb/en/start-transaction/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor, SSCursor

from cdc.contract.jobspec.deployment import JobTable, MariadbSettings
from cdc.spark.errors import SourceUnreadable
from cdc.spark.source.sql import quoted

_PATIENCE_S: Final = 10
_SETTINGS: Final = (
    "SET SESSION sql_mode = 'ANSI_QUOTES', time_zone = '+00:00', lock_wait_timeout = 10, "
    # Seconds: how long the server keeps a session that Spark lets wait
    "wait_timeout = 86400, net_write_timeout = 86400",
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
_REMEDY: Final = "check with cdc check whether the server answers and the sink's user may read"


class MariadbTransaction:
    """Implements ``ReadTransaction``.

    Args:
        session: in a transaction.
    """

    def __init__(self, session: pymysql.Connection[Any]) -> None:
        self._session = session

    def execute(self, query: str, parameters: Sequence[str] = ()) -> Cursor:
        """Runs a query."""
        cursor = self._session.cursor()
        cursor.execute(query.replace("?", "%s") if parameters else query, tuple(parameters) or None)
        return cursor

    def has_replica(self) -> bool:
        """Returns whether a sink has made its tables here."""
        found = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'cdc_cut'"
        return self.execute(found).fetchone() is not None

    def rows(self, table: JobTable) -> SSCursor:
        """Returns all rows of a table."""
        cursor = self._session.cursor(SSCursor)  # the other kind would hold all of them in memory
        listed = ", ".join(f"t.{quoted(each.name)}" for each in table.columns)
        cursor.execute(f"SELECT {listed} FROM {quoted(table.namespace, table.name)} AS t")
        return cursor


class MariadbDriver:
    """Implements ``ReplicaDriver``.

    Args:
        at: the database.
    """

    remedy_without_sink = ""

    def __init__(self, at: MariadbSettings) -> None:
        self._at = at

    @property
    def address(self) -> str:
        """``host:port/database``."""
        return self._at.address

    def exists(self) -> bool:
        """Returns True: a server that has no such database says so."""
        return True

    @contextmanager
    def begin(self) -> Iterator[MariadbTransaction]:
        """Reads in one transaction to the end of the block."""
        at = self._at
        checked = {"ssl_verify_cert": True, "ssl_verify_identity": True} if "ssl_ca" in at.tls else {}
        try:
            session = pymysql.connect(
                host=at.host,
                port=at.port,
                user=at.user,
                password=at.password.get_secret_value() if at.password else "",
                database=at.database,
                charset="utf8mb4",
                connect_timeout=_PATIENCE_S,
                **at.tls,
                **checked,
            )
            with closing(session):
                for statement in _SETTINGS:
                    session.query(statement)
                yield MariadbTransaction(session)
        except (pymysql.Error, OSError) as error:
            told = error.args[-1] if error.args else type(error).__name__
            raise SourceUnreadable(f"MariaDB failed to read {self.address}: {told}", remedy=_REMEDY) from error
