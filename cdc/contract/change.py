"""What PostgreSQL said: relations, row changes and transaction boundaries, as the decoder returns them.

Values are the bytes of the server's text form, unchanged. A value without bytes is one of three different things:
``None`` is SQL NULL, ``UNCHANGED_TOAST`` is a value that the server did not send, and a column that is absent from the
relation does not exist.

Messages on the hot path are named tuples: as immutable as frozen dataclasses, and three times cheaper to make.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.base.lsn import LSN
from cdc.base.table_names import qualified
from cdc.contract.record import RowRule


class UnchangedToast(enum.Enum):
    """The type of ``UNCHANGED_TOAST``: an out-of-line value that an UPDATE did not change and pgoutput left out."""

    UNCHANGED_TOAST = "unchanged toast"


UNCHANGED_TOAST: Final = UnchangedToast.UNCHANGED_TOAST

Row: TypeAlias = tuple[bytes | Literal[UnchangedToast.UNCHANGED_TOAST] | None, ...]
"""A row: one value per column of the relation, in attribute order."""


class ReplicaIdentity(enum.Enum):
    """The replica identity of a table; the values are those of ``pg_class.relreplident``."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class Column:
    """A published column.

    Attributes:
        name: as the server sent it.
        type_oid: ``pg_attribute.atttypid``; for a domain the domain's own oid.
        type_modifier: ``pg_attribute.atttypmod``, -1 for none.
        type_name: ``schema.name`` from the Type message (for a domain: of its base type), or of the built-in type.
        in_identity: the server flagged it as part of the replica identity (all columns under FULL).
        number: ``pg_attribute.attnum`` if the catalog was read together with the rows, else 0: the stream does not
            tell it.
        labels: oid and hashed label of each value of an enum in the type, if the catalog was read with the rows.
    """

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    in_identity: bool
    number: int = 0
    labels: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """A table as one Relation message described it. Objects compare by identity: each message makes a new one.

    ``rules`` says, by column, what was hidden of it (``contract.hiding``), and ``rows`` which rows it has; nothing in
    what the server sends.
    """

    relation_id: int
    namespace: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[Column, ...]
    rules: tuple[tuple[str, str], ...] = ()
    rows: RowRule | None = None

    @property
    def qualified_name(self) -> str:
        """``namespace.name``, as ``table_names`` spells it: for people and for configuration keys."""
        return qualified(self.namespace, self.name)


class Begin(NamedTuple):
    """Start of a transaction. ``final_lsn`` is its commit record's position, ``commit_ts`` µs since 1970 (UTC)."""

    final_lsn: LSN
    commit_ts: int
    xid: int


class Commit(NamedTuple):
    """End of a transaction: all commits below ``end_lsn`` are known by now."""

    commit_lsn: LSN
    end_lsn: LSN
    commit_ts: int


class Insert(NamedTuple):
    """An inserted row."""

    relation: Relation
    new: Row


class Update(NamedTuple):
    """An updated row. ``old`` is None if no identity column changed and the identity is not FULL.

    ``old_is_full`` tells an 'O' tuple (the whole old row) from a 'K' tuple (identity columns; all others are None).
    """

    relation: Relation
    old: Row | None
    old_is_full: bool
    new: Row


class Delete(NamedTuple):
    """A deleted row. ``old`` is as in ``Update``, but never None."""

    relation: Relation
    old: Row
    old_is_full: bool


class Truncate(NamedTuple):
    """One TRUNCATE statement, of one or several relations."""

    relations: tuple[Relation, ...]
    cascade: bool
    restart_identity: bool


class LogicalMessage(NamedTuple):
    """A message of ``pg_logical_emit_message``; ``lsn`` is its own position."""

    transactional: bool
    lsn: LSN
    prefix: str
    content: bytes


class Origin(NamedTuple):
    """The origin of a transaction that was itself replicated: where it was first committed."""

    commit_lsn: LSN
    name: str


class TypeDefinition(NamedTuple):
    """A type that is not built in, sent before the relation that uses it. For a domain, it has the base type's name."""

    oid: int
    namespace: str
    name: str


class StreamStart(NamedTuple):
    """Start of a block of changes of a transaction in progress (protocol 2); ``first_segment`` on its first block."""

    xid: int
    first_segment: bool


class StreamStop(NamedTuple):
    """End of the block that the last ``StreamStart`` opened."""


class StreamCommit(NamedTuple):
    """Commit of a streamed transaction: says what ``Begin`` and ``Commit`` say of an ordinary one."""

    xid: int
    commit_lsn: LSN
    end_lsn: LSN
    commit_ts: int


class StreamAbort(NamedTuple):
    """Rollback of a streamed transaction (``subxid == xid``), or of one of its subtransactions."""

    xid: int
    subxid: int
