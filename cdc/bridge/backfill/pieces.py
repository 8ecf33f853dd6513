"""Knows which blocks of a table the readers have, and which come next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cdc.bridge.backfill.plan import Blocks, remaining
from cdc.contract.record import LeafProgress
from cdc.contract.snapshot import Snapshot


class Piece(NamedTuple):
    """Some blocks of a heap. ``leaf`` is the heap as it was when they were planned."""

    leaf: LeafProgress
    blocks: Blocks

    def is_of(self, leaf: LeafProgress) -> bool:
        """Whether the piece belongs to this heap, and the heap was not rewritten since."""
        mine = self.leaf
        return (mine.namespace, mine.name, mine.filenode) == (leaf.namespace, leaf.name, leaf.filenode)


class Pieces:
    """The pieces of one table that are under way."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], dict[Blocks, Snapshot | None]] = {}
        self._first_open = 0

    def __bool__(self) -> bool:
        """Whether a piece is under way."""
        return any(self._taken.values())

    def planned(self) -> None:
        """Begin again with the first heap, because the heaps have changed."""
        self._first_open = 0

    def next(self, leaves: Sequence[LeafProgress], size: int, newest: Snapshot | None) -> Piece | None:
        """Returns the next piece and takes it; None when everything is done or under way.

        Args:
            leaves: the table's heaps.
            size: the most blocks in a piece.
            newest: the newest snapshot known so far; the piece's own will not be older.
        """
        for place in range(self._first_open, len(leaves)):
            leaf, self._first_open = leaves[place], place
            taken = self._taken.setdefault((leaf.namespace, leaf.name), {})
            for blocks in remaining(leaf, taken, size):
                taken[blocks] = newest
                return Piece(leaf, blocks)
        return None

    def give_back(self, piece: Piece) -> None:
        """Note that a piece is not under way any more."""
        self._taken.get((piece.leaf.namespace, piece.leaf.name), {}).pop(piece.blocks, None)

    def floors(self) -> Sequence[Snapshot]:
        """Returns for each piece a snapshot that its own is not older than; nothing if one of them is not known."""
        known = [each for taken in self._taken.values() for each in taken.values()]
        floors = [each for each in known if each is not None]
        return floors if len(floors) == len(known) else ()
