"""The relations that the engine knows: how the rows of each are encoded, in Python and in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

from cdc.base.compiled import twin
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.counts import TableCounts
from cdc.contract.change import Relation

TakeRows: TypeAlias = Callable[..., tuple[int, int]]


class PublishedRelation(NamedTuple):
    """A relation in scope: how to encode it, its counts, and both in C: a ``PlainTable``, without a compiler None."""

    encoder: TableEncoder
    counts: TableCounts
    plain: Any


NOT_OURS: Final = ()
"""In place of ``PublishedRelation`` for a table that is not ours to publish."""


class KnownRelations:
    """What was looked up.

    Attributes:
        tables: by relation.
    """

    def __init__(self) -> None:
        self.tables: dict[Relation, PublishedRelation | tuple[()]] = {}
        self._newest: dict[int, Relation] = {}

    def learn(self, relation: Relation, table: TableEncoder | None, counts: TableCounts) -> None:
        """Each Relation message makes a new object, and caches forget them often: only the newest is kept."""
        if (before := self._newest.get(relation.relation_id)) is not None:
            del self.tables[before]
        self._newest[relation.relation_id] = relation
        self.tables[relation] = NOT_OURS if table is None else PublishedRelation(table, counts, _plain(table, counts))


def take_rows() -> TakeRows | None:
    """``take_rows`` of ``_frames.pyx``; None without a compiler."""
    module = twin("cdc.bridge.order._frames")
    return None if module is None else cast(TakeRows, module.take_rows)


def _plain(table: TableEncoder, counts: TableCounts) -> Any:
    compiled, module = table.compiled, twin("cdc.bridge.order._frames")
    if compiled is None or module is None:
        return None
    writers = (compiled.values, compiled.keys)
    return module.PlainTable(table.topic, table.fingerprint, writers, compiled.key_places, counts)
