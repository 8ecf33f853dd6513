"""The seam of replica databases: what ``cdc sink``, ``status``, ``check`` and ``grants`` ask of one.

PostgreSQL is the one that there is. A second one passes the same tests:
``tests/integration/sink/postgres/test_database.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.contract.ports import ReplicaWriter
from cdc.contract.record import SourceIdentity
from cdc.sink.postgres.inspection import Inspection
from cdc.sink.postgres.naming import ReplicaName, ReplicaNaming
from cdc.sink.postgres.postgres_database import PostgresDatabase
from cdc.sink.postgres.status import SinkStatus


class ReplicaDatabase(Protocol):
    """A replica, as the configuration names it. Nothing is connected before it is asked something.

    All calls but ``grants`` raise ``ReplicaUnavailable`` when the server cannot be reached, and ``ReplicaRefused`` when
    it refuses.
    """

    @property
    def naming(self) -> ReplicaNaming:
        """Where source tables go."""

    @property
    def called(self) -> str:
        """For people."""

    def upgrade(self) -> None:
        """Make the sink's own tables, or bring them to the version that this program needs."""

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:
        """While the block lasts, see for whom the sink waits, and tell.

        Args:
            on_failure: called should a defect end that; the block's end then raises it.
        """

    def writer(self, stopped: Collection[str] = ()) -> ReplicaWriter[Any]:
        """A new session of the sink; to be closed.

        Args:
            stopped: topics that this process has stopped already.
        """

    def status(self) -> SinkStatus:
        """How the sink stands, running or not."""

    def inspect(self, tables: Sequence[ReplicaName], source: SourceIdentity | None) -> Inspection:
        """What the sink would find here; changes nothing.

        Args:
            tables: replica tables, there already or not.
            source: the source database; None when it cannot be asked.
        """

    def grants(self, schemas: Iterable[str]) -> list[str]:
        """The commands that let the sink's role do its work, and no more, for somebody who may give rights.

        Args:
            schemas: of the replica tables.

        Raises:
            ConfigError: the configuration names no role.
        """


def open_replica(
    config: Config,
    *,
    application_name: str,
    on_wait: Callable[[str, float], None] = lambda _table, _seconds: None,
) -> ReplicaDatabase:
    """The replica that the configuration names.

    Args:
        config: with a ``sink`` section.
        application_name: under which the server sees us.
        on_wait: told in a thread for how many seconds a table waits for somebody's lock; 0 when that is over.

    Raises:
        ConfigError: there is no sink section.
    """
    if config.sink is None:
        raise ConfigError("there is no sink section", remedy="add sink: {dsn: …} to the configuration")
    return PostgresDatabase(config.name, config.sink, application_name, on_wait)
