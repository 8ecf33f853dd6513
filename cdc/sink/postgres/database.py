"""PostgreSQL as a replica: implements ``ReplicaDatabase``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager

from cdc.base.config import SinkConfig
from cdc.base.pgroles import comment, role_and_database, role_lines
from cdc.contract.record import SourceIdentity
from cdc.sink.postgres.control import CONTROL_SCHEMA
from cdc.sink.postgres.errors import ELSEWHERE, replica_errors
from cdc.sink.postgres.grants import lacking, sink_grants
from cdc.sink.postgres.locks import LockWaits, watching
from cdc.sink.postgres.schema_version import upgrade
from cdc.sink.postgres.session import describe, is_database, psycopg_of, replica_engine, replica_session
from cdc.sink.postgres.status import read_refused, read_status
from cdc.sink.postgres.writer import PostgresReplica
from cdc.sink.replica import Inspection, RefusedRecord, ReplicaName, ReplicaNaming, SinkStatus, naming_of


class PostgresDatabase:
    """A replica on PostgreSQL.

    Args:
        name: the sink's name.
        sink: the sink's section of the configuration.
        application_name: what ``pg_stat_activity`` shows.
        on_wait: as for ``LockWaits``.
    """

    def __init__(
        self,
        name: str,
        sink: SinkConfig,
        application_name: str,
        on_wait: Callable[[str, float], None] = lambda _table, _seconds: None,
    ) -> None:
        self._name = name
        self._connection = sink.connection()
        self._application_name = application_name
        self._waits = LockWaits(on_wait)
        self._engine = replica_engine(self._connection, application_name=application_name, meet=self._waits.meet)
        self._sink = sink

    @property
    def naming(self) -> ReplicaNaming:
        """The names of replica tables; a new object each time, in which no name is taken yet."""
        return naming_of(self._sink)

    @property
    def called(self) -> str:
        """The replica's name in messages."""
        return "the replica"

    def upgrade(self) -> None:
        """Creates or migrates the tables of schema ``cdc``."""
        upgrade(self._engine)

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:
        """Watches for whom the sink waits and logs it, in a thread, as long as the block lasts."""
        name = f"{self._application_name} lock watch"
        return watching(self._waits, lambda: replica_session(self._connection, name), on_failure)

    def writer(self, stopped: Collection[str] = ()) -> PostgresReplica:
        """Opens a new session of the sink. The caller closes it."""
        budgets = {table: each.budget for table, each in self._sink.quarantine.items()}
        return PostgresReplica(self._engine, self._name, self.naming, self._waits, stopped, budgets)

    def status(self) -> SinkStatus:
        """Returns the state of the sink, whether it is running or not."""
        return read_status(self._engine, self._name)

    def refused(self) -> Sequence[RefusedRecord]:
        """Returns the records that replica tables go on without."""
        return read_refused(self._engine, self._name)

    def inspect(self, tables: Sequence[ReplicaName], source: SourceIdentity | None) -> Inspection:
        """Returns what the sink would find here, and changes nothing."""
        schemas = sorted({CONTROL_SCHEMA, *(name.schema for name in tables)})
        with self._engine.connect() as connection, replica_errors("reading its catalog"):
            session = psycopg_of(connection)
            is_standby = session.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)
            return Inspection(
                address=describe(self._connection),
                schemas=tuple(schemas),
                lacks=tuple(lacking(session, schemas, tables)),
                is_source=source is not None and is_database(connection, source),
                standby_remedy=ELSEWHERE if is_standby else "",
            )

    def grants(self, schemas: Iterable[str]) -> list[str]:
        """Returns SQL for the replica's owner."""
        role, database = role_and_database("sink", self._connection)
        return [
            comment(f"In database {database} of the replica: what sink {self._name} needs."),
            *role_lines(role, "LOGIN"),
            *sink_grants(role, database, schemas),
        ]
