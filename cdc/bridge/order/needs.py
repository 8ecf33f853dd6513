"""What the engine has to be told before it can go on, and the answers."""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from cdc.bridge.encode import TableEncoder
from cdc.contract.change import Relation, Row


class Definition(NamedTuple):
    """How the rows of a relation are encoded. What its transaction changed is in the catalog once that is visible.

    Attributes:
        relation: seen for the first time, or described anew.
        xid: 64-bit id of the transaction that must be visible.
    """

    relation: Relation
    xid: int


class Rows(NamedTuple):
    """Rows whose unchanged TOAST values the stream left out, to be read again from the table as it is now.

    Attributes:
        table: whose rows.
        rows: as the stream has them.
        xids: for each, the transaction that must be visible to the reading.
        keys: for each, the topic's keys that its change concerns: the row's own, behind the one it had before.
    """

    table: TableEncoder
    rows: tuple[Row, ...]
    xids: tuple[int, ...]
    keys: tuple[tuple[bytes, ...], ...]


class Empty(NamedTuple):
    """A topic whose every key is to be deleted before the change at hand.

    Attributes:
        table: whose topic; everything before the change at hand was handed out.
        header: of every tombstone.
        is_truncate: the change is a TRUNCATE; else the table begins anew, and its definition follows the tombstones.
    """

    table: TableEncoder
    header: bytes
    is_truncate: bool


Need: TypeAlias = Definition | Rows | Empty


class Filled(NamedTuple):
    """A row made whole; ``is_newer``: a value may be newer than the change, and what made it so is still to come."""

    row: Row
    is_newer: bool


class Unfilled(enum.Enum):
    """Why a row could not be made whole."""

    GONE = "gone"
    """No such row any more. What removed it is still to come, and until then the topic keeps the row before."""
    UNREADABLE = "unreadable"
    """The table is not as it was then. Who says this has the keys published again, from the table as it is."""


Answer: TypeAlias = Filled | Unfilled
