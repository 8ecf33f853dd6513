"""The connections of a thread that reads tables: of the source, or of a standby and beside it the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from cdc.base.errors import CdcError
from cdc.bridge.capture.chunk import open_chunk_reader
from cdc.bridge.capture.standby import is_standby_of, refuse_standby
from cdc.bridge.source.connect import LOOK_S, connect


class ReadingServers:
    """The connections of one reading thread.

    Attributes:
        conn: reads tables.
        primary: of the standby that ``conn`` is to; None when that is the source itself.
    """

    def __init__(self, conn: psycopg.Connection[Any], primary: psycopg.Connection[Any] | None) -> None:
        self.conn = conn
        self.primary = primary

    @classmethod
    def open(
        cls, source: Mapping[str, str], standby: Mapping[str, str] | None, application_name: str
    ) -> ReadingServers:
        """Connect.

        Raises:
            CdcError: a server does not let us in, or is not the one that it should be.
        """
        conn = open_chunk_reader(standby or source, application_name=application_name, lock_timeout_s=LOOK_S)
        servers = cls(conn, None)
        try:
            if standby is None:
                refuse_standby(servers.conn)
            else:
                servers._look_at(connect(source, application_name=application_name))
        except CdcError:
            servers.close()
            raise
        return servers

    def _look_at(self, primary: psycopg.Connection[Any]) -> None:
        self.primary = primary
        refuse_standby(primary)
        if not is_standby_of(self.conn, primary):
            primary.close()
            self.primary = None

    @property
    def are_closed(self) -> bool:
        """Whether one of them is."""
        return any(each.closed for each in self.all())

    def close(self) -> None:
        """Close them."""
        for each in self.all():
            each.close()

    def all(self) -> tuple[psycopg.Connection[Any], ...]:
        """The connections."""
        return (self.conn,) if self.primary is None else (self.conn, self.primary)
