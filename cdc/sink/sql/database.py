"""A database other than PostgreSQL as a replica: implements ``ReplicaDatabase``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from operator import itemgetter
from typing import Any, NoReturn

from cdc.base.config import SinkConfig
from cdc.base.errors import ConfigError
from cdc.base.lsn import LSN
from cdc.contract.record import SourceIdentity
from cdc.sink.replica import Inspection, RefusedRecord, ReplicaName, ReplicaNaming, SinkStatus, TableStatus, naming_of
from cdc.sink.sql.control import are_there, create, read_state, seconds
from cdc.sink.sql.dialect import SqlDialect, replica_errors
from cdc.sink.sql.writer import SqlReplica, Tolerance

_NOTHING_YET = SinkStatus(None, None, 0, running=False, tables=())


class SqlDatabase:
    """A replica in a database that SQLAlchemy knows.

    Args:
        name: the sink's name.
        sink: the sink's section of the configuration.
        dialect: of the database.
    """

    def __init__(self, name: str, sink: SinkConfig, dialect: SqlDialect) -> None:
        self._name = name
        self._sink = sink
        self._dialect = dialect
        self._tolerance = Tolerance({table: each.budget for table, each in sink.quarantine.items()})

    @property
    def naming(self) -> ReplicaNaming:
        """The names of replica tables; a new object each time, in which no name is taken yet."""
        return naming_of(self._sink, self._dialect.names)

    @property
    def called(self) -> str:
        """The replica's name in messages."""
        return "the replica"

    def upgrade(self) -> None:
        """Creates the sink's own tables."""
        with replica_errors(self._dialect, "creating the sink's own tables"), closing(self._dialect.connect()) as found:
            create(found)
            found.commit()

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:  # noqa: ARG002 - of the port
        """Does nothing: the database does not say for whom a session waits."""
        return nullcontext()

    def writer(self, stopped: Collection[str] = ()) -> SqlReplica:
        """Opens a new session of the sink. The caller closes it."""
        return SqlReplica(self._dialect, self._name, self.naming, self._tolerance, stopped)

    def status(self) -> SinkStatus:
        """Returns the state of the sink, whether it is running or not."""
        state, running = self._state()
        return _NOTHING_YET if state is None else _status(state, running=running)

    def refused(self) -> Sequence[RefusedRecord]:
        """Returns the records that replica tables go on without, topic by topic."""
        state, _ = self._state()
        rows = sorted(state.get("refused", ()) if state else (), key=itemgetter("topic", "since"))
        return [
            RefusedRecord(
                row["topic"], row["key"].encode(), row["partition"], row["record_offset"], row["reason"], row["since"]
            )
            for row in rows
        ]

    def inspect(self, tables: Sequence[ReplicaName], source: SourceIdentity | None) -> Inspection:  # noqa: ARG002
        """Returns what the sink would find here, and changes nothing."""
        schemas = sorted({name.schema for name in tables})
        with replica_errors(self._dialect, "opening it"):
            lacks = self._dialect.lacks()
            # Nobody else can open what the running sink tells about: that it runs is proof enough
            is_told = self._dialect.told is not None and self._dialect.sole_writer(self._name).is_taken()
            if not lacks and not is_told and self._dialect.exists():
                with closing(self._dialect.connect(reads_only=True)) as connection:
                    are_there(connection)
        return Inspection(self._dialect.address, tuple(schemas), tuple(lacks), is_source=False, standby_remedy="")

    def grants(self, schemas: Iterable[str]) -> NoReturn:  # noqa: ARG002 - of the protocol
        """Refuses: only PostgreSQL's rights are commands that cdc knows.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"cdc knows no grants for {self._dialect.called}, in which the replica is", remedy=self._dialect.grants
        )

    def _state(self) -> tuple[Mapping[str, Any] | None, bool]:
        """Returns what the sink recorded, None before its first start; and whether it is running."""
        with replica_errors(self._dialect, "reading the sink's state"):
            if not self._dialect.exists():
                return None, False
            running = self._dialect.sole_writer(self._name).is_taken()
            if running and self._dialect.told is not None and (state := self._dialect.told.read(self._name)):
                return state, True
            with closing(self._dialect.connect(reads_only=True)) as connection:
                return (read_state(connection, self._name) if are_there(connection) else None), running


def _status(state: Mapping[str, Any], *, running: bool) -> SinkStatus:
    """Returns the state of a sink from what it recorded. A running one may be of a version that put no rows aside."""
    refused = Counter(row["topic"] for row in state.get("refused", ()))
    at = state["cut"]
    tables = sorted(state["tables"], key=itemgetter("topic"))
    return SinkStatus(
        lsn=LSN.parse(at["lsn"]) if at and at["lsn"] else None,
        applied_lsn=LSN.parse(at["applied_lsn"]) if at else None,
        commit_ts=at["commit_ts"] if at else 0,
        running=running,
        tables=tuple(
            TableStatus(
                row["topic"],
                row["replica_table"],
                row["state"],
                row["rows_applied"],
                row["reason"] or "",
                refused[row["topic"]],
            )
            for row in tables
        ),
        applied_s=_age_s(at["applied_at"]) if at else None,
        level_s=_age_s(at["caught_up_at"]) if at else None,
    )


def _age_s(moment: int) -> float:
    """Returns the seconds since a moment, at least 0: the clock of the sink's machine may be a little ahead."""
    return max(time.time() - seconds(moment), 0.0)
