"""A table as the catalog has it at one moment, the versions of its rows, and what a snapshot sees of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tests.world.postgres_transaction import WorldTransaction

Cells: TypeAlias = tuple[bytes | None, ...]
"""A row version's values by attribute number, from 1 on. A version has none for columns that are younger than it."""
Row: TypeAlias = dict[str, bytes | None]

TYPES: Final = {"int4": 23, "int8": 20, "text": 25, "jsonb": 3802, "numeric": 1700, "bool": 16}
TYPE_NAMES: Final = {oid: name for name, oid in TYPES.items()}
VARIABLE: Final = frozenset({25, 3802, 1700})
"""Types whose values may be stored out of line."""
ROWS_PER_BLOCK: Final = 2


class Attribute(NamedTuple):
    """A column.

    Attributes:
        missing: the value in row versions that are older than the column.
        default: the value of an INSERT that does not name it.
    """

    name: str
    type_oid: int
    number: int
    missing: bytes | None = None
    default: bytes | None = None
    is_dropped: bool = False


class UniqueIndex(NamedTuple):
    """A unique index over columns that are not null."""

    name: str
    numbers: tuple[int, ...]
    is_primary: bool = False
    is_identity: bool = False


@dataclass(frozen=True, eq=False)
class WorldTable:
    """A table at one moment; DDL makes another object.

    Attributes:
        identity: ``pg_class.relreplident``.
        filenode: names the file that holds its rows; a new table's is its oid.
    """

    oid: int
    namespace: str
    name: str
    attributes: tuple[Attribute, ...]
    indexes: tuple[UniqueIndex, ...]
    identity: str
    filenode: int

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The columns that are there."""
        return tuple(each for each in self.attributes if not each.is_dropped)

    @cached_property
    def by_name(self) -> Mapping[str, Attribute]:
        """The columns that are there, by name."""
        return {each.name: each for each in self.columns}

    @cached_property
    def identity_numbers(self) -> tuple[int, ...]:
        """The attributes of the old row that are logged, sorted; all of them under FULL."""
        if self.identity == "f":
            return tuple(each.number for each in self.columns)
        for index in self.indexes:
            if (self.identity == "d" and index.is_primary) or (self.identity == "i" and index.is_identity):
                return tuple(sorted(index.numbers))
        return ()

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key or, without one, of the identity; for tests."""
        for index in self.indexes:
            if index.is_primary:
                return tuple(self.attributes[number - 1].name for number in index.numbers)
        return tuple(self.attributes[number - 1].name for number in self.identity_numbers)

    def cell(self, cells: Cells, number: int) -> bytes | None:
        """Returns a value of a row version that may be older than the column."""
        return cells[number - 1] if number <= len(cells) else self.attributes[number - 1].missing

    def row(self, cells: Cells) -> Row:
        """Returns a row version by column."""
        return {each.name: self.cell(cells, each.number) for each in self.columns}

    def attribute(self, name: str) -> Attribute:
        """Returns a column.

        Raises:
            AssertionError: the test names a column that is not there.
        """
        assert name in self.by_name, f"{self.namespace}.{self.name} has no column {name}"
        return self.by_name[name]

    def with_attribute(self, changed: Attribute) -> WorldTable:
        """Returns the table with another description of one of its columns."""
        attributes = tuple(changed if each.number == changed.number else each for each in self.attributes)
        return replace(self, attributes=attributes)


class Work:
    """A transaction or subtransaction that wrote something.

    Attributes:
        top: the transaction that it is part of.
        is_undone: whether it was rolled back.
        undone_at: where the WAL says so.
    """

    __slots__ = ("is_undone", "top", "undone_at", "xid")

    def __init__(self, xid: int, top: WorldTransaction) -> None:
        self.xid = xid
        self.top = top
        self.is_undone = False
        self.undone_at = 0

    def undo(self, lsn: int) -> None:
        """Note that it is rolled back, by a record at this position."""
        if not self.is_undone:
            self.is_undone, self.undone_at = True, lsn

    def is_undone_before(self, lsn: int) -> bool:
        """Whether the WAL before a position says that it was rolled back."""
        return self.is_undone and self.undone_at < lsn


class RowVersion:
    """A version of a row. Whoever removed it may have been rolled back."""

    __slots__ = ("block", "cells", "remover", "writer")

    def __init__(self, cells: Cells, writer: Work, block: int) -> None:
        self.cells = cells
        self.writer = writer
        self.remover: Work | None = None
        self.block = block

    @property
    def is_dead(self) -> bool:
        """Whether no new snapshot will ever see it."""
        remover = self.remover
        return self.writer.is_undone or (remover is not None and not remover.is_undone and remover.top.is_shown)


class Heap:
    """A file of row versions.

    Attributes:
        versions: all that were ever written, for old snapshots and for the history.
        current: those that may be alive, for writers; some of them are dead.
        blocks: how many blocks it has.
    """

    __slots__ = ("blocks", "current", "versions")

    def __init__(self) -> None:
        self.versions: list[RowVersion] = []
        self.current: list[RowVersion] = []
        self.blocks = 0

    def add(self, cells: Cells, writer: Work, block: int) -> None:
        """Put a version into a block, which may be a new one."""
        version = RowVersion(cells, writer, block)
        self.versions.append(version)
        self.current.append(version)
        self.blocks = max(self.blocks, block + 1)

    def free_blocks(self) -> list[int]:
        """Returns the blocks with room: what nobody can see any more leaves room for others."""
        self.current = [each for each in self.current if not each.is_dead]
        used = [0] * self.blocks
        for version in self.current:
            used[version.block] += 1
        return [block for block, count in enumerate(used) if count < ROWS_PER_BLOCK]


class Sees:
    """A snapshot.

    Attributes:
        xmin: every older transaction is over.
        xmax: no transaction from here on is seen.
        running: transactions below ``xmax`` that are running.
        replayed: on a standby and for ``history``, the position instead: commits that end up to it are seen.
    """

    __slots__ = ("replayed", "running", "xmax", "xmin")

    def __init__(self, xmin: int, xmax: int, running: frozenset[int], replayed: int | None = None) -> None:
        self.xmin = xmin
        self.xmax = xmax
        self.running = running
        self.replayed = replayed

    @property
    def text(self) -> str:
        """The snapshot as ``pg_current_snapshot()`` prints it."""
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def is_done(self, work: Work) -> bool:
        """Whether it sees what this transaction did."""
        top = work.top
        if work.is_undone or top.end_lsn is None:
            return False
        if self.replayed is not None:
            return top.end_lsn <= self.replayed
        return top.xid < self.xmax and top.xid not in self.running

    def rows(self, heap: Heap) -> Iterator[RowVersion]:
        """Yields the versions that it sees, in the order of their blocks."""
        for version in sorted(heap.versions, key=lambda each: each.block):
            if self.is_done(version.writer) and (version.remover is None or not self.is_done(version.remover)):
                yield version


@dataclass(frozen=True, eq=False)
class WorldPublication:
    """A publication of some tables, or of all.

    Attributes:
        version: the transaction that made it.
        entries: the oid of the entry that carries a table, by the table's oid.
    """

    name: str
    oid: int
    version: int
    all_tables: bool
    entries: Mapping[int, int] = field(default_factory=dict)

    def carries(self, oid: int) -> bool:
        """Whether it carries the table."""
        return self.all_tables or oid in self.entries
