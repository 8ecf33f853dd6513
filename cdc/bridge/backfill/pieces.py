"""Which blocks of a table are with the readers, and which come next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cdc.bridge.backfill.plan import Blocks, remaining
from cdc.contract.record import LeafProgress
from cdc.contract.snapshot import Snapshot


class Piece(NamedTuple):
    """Some blocks of a heap; ``leaf`` as it was when they were planned."""

    leaf: LeafProgress
    blocks: Blocks

    def is_of(self, leaf: LeafProgress) -> bool:
        """Whether it is of this heap, and not of one that was rewritten since."""
        mine = self.leaf
        return (mine.namespace, mine.name, mine.filenode) == (leaf.namespace, leaf.name, leaf.filenode)


class Pieces:
    """The pieces of one table that are under way."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], dict[Blocks, Snapshot | None]] = {}
        self._first_open = 0

    def __bool__(self) -> bool:
        """Whether there are some."""
        return any(self._taken.values())

    def planned(self) -> None:
        """The heaps are others than before."""
        self._first_open = 0

    def next(self, leaves: Sequence[LeafProgress], size: int, newest: Snapshot | None) -> Piece | None:
        """The next piece, which is under way from now on; None when everything is done or under way.

        Args:
            leaves: the table's.
            size: at most so many blocks.
            newest: the newest snapshot that is known by now.
        """
        for place in range(self._first_open, len(leaves)):
            leaf, self._first_open = leaves[place], place
            taken = self._taken.setdefault((leaf.namespace, leaf.name), {})
            for blocks in remaining(leaf, taken, size):
                taken[blocks] = newest
                return Piece(leaf, blocks)
        return None

    def give_back(self, piece: Piece) -> None:
        """It is not under way any more."""
        self._taken.get((piece.leaf.namespace, piece.leaf.name), {}).pop(piece.blocks, None)

    def floors(self) -> Sequence[Snapshot]:
        """For each piece a snapshot that its own is not older than; nothing when that is not known of all."""
        known = [each for taken in self._taken.values() for each in taken.values()]
        floors = [each for each in known if each is not None]
        return floors if len(floors) == len(known) else ()
