"""Names of replica tables, from ``sink.schema``, ``sink.prefix`` and ``sink.tables``; the schema of the sink's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.base.config import SinkConfig
from cdc.base.errors import ConfigError
from cdc.base.table_names import parts, qualified
from cdc.contract.record import TableSchema

CONTROL_SCHEMA: Final = "cdc"
"""The schema of the tables in which the sink keeps its state."""

_MAX_IDENTIFIER_BYTES: Final = 63
"""NAMEDATALEN - 1. PostgreSQL truncates longer names silently, and two truncated names may be the same."""


class ReplicaName(NamedTuple):
    """Schema and table in the replica."""

    schema: str
    table: str

    def __str__(self) -> str:
        return qualified(self.schema, self.table)


class ReplicaNaming:
    """Names replica tables, and refuses to give two source tables the same one.

    Args:
        schema: the schema of all replica tables; None keeps each source table's own.
        prefix: put before each table's name.
        tables: source ``schema.table`` → replica ``schema.table``; overrides the other two.
    """

    def __init__(self, schema: str | None, prefix: str, tables: Mapping[str, str]) -> None:
        self._schema = schema
        self._prefix = prefix
        self._tables = tables
        self._taken: dict[ReplicaName, str] = {}

    def name(self, schema: TableSchema) -> ReplicaName:
        """Returns the replica table of a source table, and reserves it for that table's topic.

        Raises:
            ConfigError: another topic has that replica table already, or the name is too long.
        """
        source, name = schema.qualified_name, self.place(schema)
        holder = self._taken.setdefault(name, schema.topic)
        if holder != schema.topic:
            raise ConfigError(
                f"topics {holder!r} and {schema.topic!r} would both be mirrored into replica table {name}",
                remedy=f"give one of them another place, sink.tables: {{{source!r}: …}}",
            )
        return name

    def place(self, schema: TableSchema) -> ReplicaName:
        """Returns the replica table of a source table, even if another topic has it already.

        Raises:
            ConfigError: the name is too long.
        """
        source = schema.qualified_name
        configured = self._tables.get(source)
        if configured is not None:
            name = ReplicaName(*parts(configured))
        else:
            name = ReplicaName(self._schema or schema.namespace, self._prefix + schema.name)
        if max(len(part.encode()) for part in name) > _MAX_IDENTIFIER_BYTES:
            raise ConfigError(
                f"the replica table of {source} would be called {name}: longer than {_MAX_IDENTIFIER_BYTES} bytes",
                remedy=f"give it a shorter one, sink.tables: {{{source!r}: …}}",
            )
        return name


def naming_of(sink: SinkConfig) -> ReplicaNaming:
    """Returns the naming that the configuration asks for."""
    return ReplicaNaming(sink.schema_name, sink.prefix, sink.tables)
