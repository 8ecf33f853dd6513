"""What the rest of cdc knows about a replica: its tables' names, its state, and what can be asked of it.

A dialect is PostgreSQL's room, or a module in ``sql``. It has to pass the tests of
``ReplicaContract`` in ``tests/integration/sink/test_databases.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from cdc.base.config import SinkConfig
from cdc.base.errors import ConfigError
from cdc.base.lsn import LSN
from cdc.base.table_names import parts, qualified
from cdc.contract.ports import ReplicaWriter
from cdc.contract.record import SourceIdentity, TableSchema


class ReplicaName(NamedTuple):
    """Schema and table in the replica."""

    schema: str
    table: str

    def __str__(self) -> str:
        return qualified(self.schema, self.table)


class NameRules(NamedTuple):
    """What a database says about the names of tables.

    Attributes:
        schema: the only schema, for a database that has no others: other schemas of the source become part of a
            table's name. None if each table may have its own.
        longest: bytes of a name; None for no limit.
        folds_case: whether names that differ only in case are the same.
        reserved: tables in which the sink keeps its own state, among the replica tables.
    """

    schema: str | None = None
    longest: int | None = None
    folds_case: bool = False
    reserved: frozenset[ReplicaName] = frozenset()


POSTGRES_NAMES: Final = NameRules(longest=63)
"""NAMEDATALEN - 1. PostgreSQL truncates longer names silently, and two truncated names may be the same."""


class ReplicaNaming:
    """Names replica tables, and refuses to give two source tables the same one.

    Args:
        schema: the schema of all replica tables; None keeps each source table's own.
        prefix: put before each table's name.
        tables: source ``schema.table`` → replica ``schema.table``; overrides the other two.
        rules: what the database says about names.
    """

    def __init__(
        self, schema: str | None, prefix: str, tables: Mapping[str, str], rules: NameRules = POSTGRES_NAMES
    ) -> None:
        self._schema = schema
        self._prefix = prefix
        self._tables = tables
        self._rules = rules
        self._taken: dict[str, str] = {}

    @property
    def folds_case(self) -> bool:
        """Whether names that differ only in case are the same."""
        return self._rules.folds_case

    def name(self, schema: TableSchema) -> ReplicaName:
        """Returns the replica table of a source table, and reserves it for that table's topic.

        Raises:
            ConfigError: another topic has that replica table already, or the database has no such name.
        """
        source, name = schema.qualified_name, self.place(schema)
        known_as = str(name).lower() if self.folds_case else str(name)
        holder = self._taken.setdefault(known_as, schema.topic)
        if holder != schema.topic:
            raise ConfigError(
                f"topics {holder!r} and {schema.topic!r} would both be mirrored into replica table {name}",
                remedy=f"give one of them another place, sink.tables: {{{source!r}: …}}",
            )
        return name

    def place(self, schema: TableSchema) -> ReplicaName:
        """Returns the replica table of a source table, even if another topic has it already.

        Raises:
            ConfigError: the database has no such name.
        """
        source = schema.qualified_name
        sole, longest = self._rules.schema, self._rules.longest
        configured = self._tables.get(source)
        if configured is not None:
            name = ReplicaName(*parts(configured))
        elif sole is not None:
            flat = schema.name if schema.namespace == "public" else f"{schema.namespace}_{schema.name}"
            name = ReplicaName(sole, self._prefix + flat)
        else:
            name = ReplicaName(self._schema or schema.namespace, self._prefix + schema.name)
        why = ""
        if longest is not None and max(len(part.encode()) for part in name) > longest:
            why = f"longer than {longest} bytes"
        elif sole not in (None, name.schema):
            why = f"the only schema there is {sole}"
        elif name._replace(table=name.table.lower() if self.folds_case else name.table) in self._rules.reserved:
            why = "the sink keeps its own state in a table of this name"
        if why:
            raise ConfigError(
                f"the replica table of {source} would be called {name}: {why}",
                remedy=f"give it another one, sink.tables: {{{source!r}: {sole or '…'}.…}}",
            )
        return name


def naming_of(sink: SinkConfig, rules: NameRules = POSTGRES_NAMES) -> ReplicaNaming:
    """Returns the naming that the configuration asks for, in which no name is taken yet."""
    return ReplicaNaming(sink.schema_name, sink.prefix, sink.tables, rules)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of one replica table.

    Attributes:
        topic: the topic that it mirrors.
        replica_table: ``schema.table`` in the replica.
        state: one of ``metrics.TABLE_STATES``.
        rows_applied: upserts and deletes since the table was created.
        reason: why it is stopped or rebuilt; else empty.
        refused: how many rows it lacks because it refused them.
    """

    topic: str
    replica_table: str
    state: str
    rows_applied: int
    reason: str
    refused: int = 0


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """The newest record of its key, which a replica table refuses and therefore lacks.

    Attributes:
        topic: where it is.
        key: in JSON.
        partition: where it is.
        offset: where it is.
        reason: why the replica table refuses it.
        since: when it did, in µs since 1970, by the replica's clock.
    """

    topic: str
    key: bytes
    partition: int
    offset: int
    reason: str
    since: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session, or several, whose lock keeps the sink from a table.

    Attributes:
        table: the locked table; empty when the sink waits for a row or a transaction.
        who: pids, with the application, user and query of each as far as we may see them.
        remedy: what ends the wait.
        seconds: how long the sink has waited, or the table has been left out.
        is_left_out: the sink goes on without this table; when False, all tables wait.
    """

    table: str
    who: str
    remedy: str
    seconds: float
    is_left_out: bool


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The state of the sink. Ages are in seconds, by the replica's own clock.

    Attributes:
        lsn: the cut's LSN; None before the first cut, and while the sink catches up.
        applied_lsn: how far rows are applied; None before the first cut.
        commit_ts: when the newest transaction in the cut was committed, in µs since 1970; 0 before the first cut.
        running: a sink of this name holds its lock.
        tables: every mirrored table.
        applied_s: age of the last cut's commit; None before the first cut.
        level_s: age of the last moment at which the topics held nothing that the replica lacked.
        still_s: how long the sink's session has been idle; None when there is no session, when we may not see it, and
            while it runs a statement.
        blockers: who keeps a running sink from its tables.
    """

    lsn: LSN | None
    applied_lsn: LSN | None
    commit_ts: int
    running: bool
    tables: tuple[TableStatus, ...]
    applied_s: float | None = None
    level_s: float | None = None
    still_s: float | None = None
    blockers: tuple[Blocker, ...] = ()


class Lack(NamedTuple):
    """A right that is missing.

    Attributes:
        subject: the object, for instance ``schema cdc``.
        text: what the role may not do.
        remedy: the command that grants the right.
    """

    subject: str
    text: str
    remedy: str


class Inspection(NamedTuple):
    """What ``cdc check`` learns about a replica before a sink writes to it.

    Attributes:
        address: ``user@host:port/database``, for messages.
        schemas: the schemas that were checked: those of the replica tables, and the sink's own.
        lacks: the rights that are missing.
        is_source: the replica is the source database itself.
        standby_remedy: what to do because the server is a standby, which takes no writes; empty when it is none.
    """

    address: str
    schemas: tuple[str, ...]
    lacks: tuple[Lack, ...]
    is_source: bool
    standby_remedy: str


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

    def refused(self) -> Sequence[RefusedRecord]:
        """Returns the records that replica tables refuse and go on without, as ``sink.quarantine`` allows."""

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
