"""The relations that the engine has met: whether each is published, and how its rows are encoded, in Python and C."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from cdc.base.compiled import twin
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.counts import TableCounts
from cdc.bridge.order.outbox import OutboxEncoder
from cdc.contract.change import Relation

TakeRows: TypeAlias = Callable[..., tuple[int, int]]


class NotPublished(enum.Enum):
    """Why no row of a relation goes out. A relation in any other state has a ``PublishedRelation``."""

    UNMET = "its first change is at hand: the engine needs its definition"
    OUT_OF_SCOPE = "whoever answered that need said that the table is not ours to publish, or that it is an outbox"


UNMET: Final = NotPublished.UNMET
OUT_OF_SCOPE: Final = NotPublished.OUT_OF_SCOPE


class PublishedRelation(NamedTuple):
    """A relation in scope, with its encoder and its counts."""

    encoder: TableEncoder
    counts: TableCounts


class KnownRelations:
    """Keeps what was looked up.

    Attributes:
        tables: the answer for each relation; a relation that is missing here is ``UNMET``.
        outboxes: the encoder and counts of each relation that is an outbox; its rows are not published, but its events.
        plain: the ``PlainTable`` of each relation in scope, which does the same in C; empty without a compiler.
    """

    def __init__(self) -> None:
        self.tables: dict[Relation, PublishedRelation | Literal[NotPublished.OUT_OF_SCOPE]] = {}
        self.outboxes: dict[Relation, tuple[OutboxEncoder, TableCounts]] = {}
        self.plain: dict[Relation, Any] = {}
        self._newest: dict[int, Relation] = {}

    def learn(self, relation: Relation, table: TableEncoder | OutboxEncoder | None, counts: TableCounts) -> None:
        """Keep the answer to a ``Definition``; a ``table`` of None is out of scope."""
        # Each Relation message makes a new object, and servers often send them again: keep only the newest.
        if (before := self._newest.get(relation.relation_id)) is not None:
            del self.tables[before]
            self.plain.pop(before, None)
            self.outboxes.pop(before, None)
        self._newest[relation.relation_id] = relation
        if not isinstance(table, TableEncoder):
            self.tables[relation] = OUT_OF_SCOPE
            if table is not None:
                self.outboxes[relation] = table, counts
            return
        self.tables[relation] = PublishedRelation(table, counts)
        if (plain := _plain(table, counts)) is not None:
            self.plain[relation] = plain

    def forget(self, name: str) -> None:
        """Forget what was answered for ``schema.table``: its next change is looked up again."""
        for relation in [each for each in self._newest.values() if each.qualified_name == name]:
            del self._newest[relation.relation_id], self.tables[relation]
            self.plain.pop(relation, None)
            self.outboxes.pop(relation, None)


def take_rows() -> TakeRows | None:
    """Returns ``take_rows`` of ``_frames.pyx``; None without a compiler."""
    module = twin("cdc.bridge.order._frames")
    return None if module is None else cast(TakeRows, module.take_rows)


def _plain(table: TableEncoder, counts: TableCounts) -> Any:
    compiled, module = table.compiled, twin("cdc.bridge.order._frames")
    if compiled is None or module is None:
        return None
    writers = (compiled.values, compiled.keys)
    has_envelope = table.schema.envelope is not None
    return module.PlainTable(
        table.topic, table.fingerprint, writers, compiled.key_places, compiled.most_bytes, counts, has_envelope
    )
