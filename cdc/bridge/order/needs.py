"""What the engine has to be told before it can go on, and the possible answers."""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from cdc.bridge.encode import TableEncoder
from cdc.contract.change import Relation, Row


class Definition(NamedTuple):
    """The engine needs to know how a relation's rows are encoded. The catalog tells once the transaction is visible.

    Attributes:
        relation: the relation, seen for the first time or described anew.
        xid: the 64-bit id of the transaction that must be visible.
    """

    relation: Relation
    xid: int


class Rows(NamedTuple):
    """The engine needs rows whose unchanged TOAST the stream left out, read again from the table as it is now.

    Attributes:
        table: the table that the rows belong to.
        rows: the rows, as the stream sent them.
        xids: for each row, the transaction that the reading must see.
        keys: for each row, the topic's keys that its change concerns: the old key if it changed, then the row's own.
    """

    table: TableEncoder
    rows: tuple[Row, ...]
    xids: tuple[int, ...]
    keys: tuple[tuple[bytes, ...], ...]


class Empty(NamedTuple):
    """The engine needs every key of a topic deleted before it takes the change at hand.

    Attributes:
        table: the table whose topic it is; everything before the change at hand was handed out.
        header: the header of every tombstone.
        is_truncate: the change is a TRUNCATE; else the table begins anew, and its definition follows the tombstones.
    """

    table: TableEncoder
    header: bytes
    is_truncate: bool


class EventTopic(NamedTuple):
    """The engine needs a topic for events, whose name it meets for the first time.

    Attributes:
        topic: its name.
        outbox: ``schema.table`` of the outbox table whose row named it.
    """

    topic: str
    outbox: str


Need: TypeAlias = Definition | Rows | Empty | EventTopic


class Filled(NamedTuple):
    """A row made whole. ``is_newer``: a value may be newer than the change, and the change that made it is to come."""

    row: Row
    is_newer: bool


class Unfilled(enum.Enum):
    """Why a row could not be made whole."""

    GONE = "gone"
    """The row is no longer there. Until the change that removed it comes, the topic keeps the row as it was."""
    UNREADABLE = "unreadable"
    """The table has changed since. Whoever answers so has the keys published again, from the table as it is then."""


Answer: TypeAlias = Filled | Unfilled
