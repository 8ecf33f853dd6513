"""The interface of a replica database: what ``cdc sink``, ``status``, ``check`` and ``grants`` ask of it.

PostgreSQL is the only implementation. A second one would have to pass the same tests:
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
    """The replica that the configuration names. It connects at the first question.

    All calls but ``grants`` raise ``ReplicaUnavailable`` when the server cannot be reached, and ``ReplicaRefused`` when
    it refuses.
    """

    @property
    def naming(self) -> ReplicaNaming:
        """The names of replica tables."""

    @property
    def called(self) -> str:
        """The replica's name in messages."""

    def upgrade(self) -> None:
        """Creates the sink's own tables, or migrates them to the version that this program needs."""

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:
        """Watches for whom the sink waits and logs it, as long as the block lasts.

        Args:
            on_failure: called if a defect ends the watching; the end of the block then raises it.
        """

    def writer(self, stopped: Collection[str] = ()) -> ReplicaWriter[Any]:
        """Opens a new session of the sink. The caller closes it.

        Args:
            stopped: topics that this process has stopped already.
        """

    def status(self) -> SinkStatus:
        """Returns the state of the sink, whether it is running or not."""

    def inspect(self, tables: Sequence[ReplicaName], source: SourceIdentity | None) -> Inspection:
        """Returns what the sink would find here, and changes nothing.

        Args:
            tables: replica tables, which may not exist yet.
            source: the source database; None when it cannot be asked.
        """

    def grants(self, schemas: Iterable[str]) -> list[str]:
        """Returns commands for the replica's owner: they give the sink's role the rights it needs, and no more.

        Args:
            schemas: the schemas of the replica tables.

        Raises:
            ConfigError: the configuration names no role.
        """


def open_replica(
    config: Config,
    *,
    application_name: str,
    on_wait: Callable[[str, float], None] = lambda _table, _seconds: None,
) -> ReplicaDatabase:
    """Returns the replica that the configuration names.

    Args:
        config: has a ``sink`` section.
        application_name: what ``pg_stat_activity`` shows.
        on_wait: called in a thread: a table, and for how many seconds it has waited for a lock; 0 when that is over.

    Raises:
        ConfigError: the configuration has no ``sink`` section.
    """
    if config.sink is None:
        raise ConfigError("the configuration has no sink section", remedy="add sink: {dsn: …} to it")
    return PostgresDatabase(config.name, config.sink, application_name, on_wait)
