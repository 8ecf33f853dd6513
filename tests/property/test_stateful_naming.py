"""Names under random steps: two tables never share a topic or a replica table, whatever they are called.

This needs no server. ``SEED=42`` replays a run.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import strategies
from hypothesis.stateful import initialize, rule

from cdc.base.errors import ConfigError
from cdc.base.table_names import parts, qualified
from cdc.contract.naming import topic_name
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.replica import ReplicaName, ReplicaNaming
from tests.support.soak import times
from tests.support.stateful import Machine, run_machine

PIECES: Final = ("a", "A", "b", ".", "_", "-", "-2E", '"', " ", "é", "e\u0301", "ß", "x" * 31)
LONGEST: Final = 63
"""Bytes of a name, in the source and in the replica."""

namespaces = strategies.sampled_from(["a", "A", "."])
tables = strategies.lists(strategies.sampled_from(PIECES), min_size=1, max_size=2).map("".join)
"""Few enough to meet again."""


class Names(Machine):
    """A naming, with all that it was asked for.

    Attributes:
        topics: topic → the table that it belongs to.
        places: replica table → the topic that has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, tuple[str, str]] = {}
        self.places: dict[ReplicaName, str] = {}

    @initialize(
        schema=strategies.none() | namespaces,
        prefix=strategies.sampled_from(["", "a", "é" * 5]),
        moved=strategies.lists(strategies.tuples(namespaces, tables, namespaces, tables), max_size=3),
    )
    def configure(self, schema: str | None, prefix: str, moved: list[tuple[str, str, str, str]]) -> None:
        self.schema, self.prefix = schema, prefix
        self.configured = {(source, table): ReplicaName(to, other) for source, table, to, other in moved}
        written = {qualified(*table): str(place) for table, place in self.configured.items()}
        self.naming = ReplicaNaming(schema, prefix, written)

    @rule(namespace=namespaces, table=tables)
    def name(self, namespace: str, table: str) -> None:
        assert parts(qualified(namespace, table)) == (namespace, table)
        topic = topic_name("shop", namespace, table)
        assert self.topics.setdefault(topic, (namespace, table)) == (namespace, table)
        place = self.configured.get((namespace, table), ReplicaName(self.schema or namespace, self.prefix + table))
        definition = TableSchema("0", namespace, table, topic, ("id",), (SchemaColumn("id", "int4"),))
        if max(len(part.encode()) for part in place) > LONGEST:
            with pytest.raises(ConfigError, match="longer than 63 bytes"):
                self.naming.name(definition)
        elif self.places.setdefault(place, topic) != topic:
            with pytest.raises(ConfigError, match="would both be mirrored"):
                self.naming.name(definition)
        else:
            assert self.naming.name(definition) == place


@pytest.mark.soak
def test_two_tables_never_share_a_topic_or_a_replica_table() -> None:
    run_machine(Names, examples=times(100, soak=20_000), steps=50)
