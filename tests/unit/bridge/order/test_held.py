"""What waits in line, and how much of it there may be."""

from __future__ import annotations

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.held import MAX_HELD, MAX_HELD_BYTES, Held, RowPlace, StreamStanding
from cdc.bridge.order.needs import Filled, Unfilled
from cdc.contract.change import UNCHANGED_TOAST, Column, Relation, ReplicaIdentity
from cdc.contract.record import Ready

STANDING = StreamStanding(LSN(100), 5, LSN(200))
TABLE = TableEncoder(
    Relation(
        1,
        "public",
        "t",
        ReplicaIdentity.DEFAULT,
        (Column("id", 20, -1, "pg_catalog.int8", True), Column("j", 3802, -1, "pg_catalog.jsonb", False)),
    ),
    ("id",),
    "t",
)


def record(value: bytes | None = None) -> Ready:
    return "t", b"key", value, b"v=1", None


def hold(held: Held, seq: int, cell: bytes = b"1", old_key: bytes | None = None) -> None:
    """A row whose document is to be read again."""
    held.add_row(STANDING, RowPlace(seq, 0), record(), table=TABLE, row=(cell, UNCHANGED_TOAST), xid=7, old_key=old_key)


def is_full(held: Held) -> bool:
    """A property that changes, which mypy takes for one that does not."""
    return held.is_full


def test_bounds_are_of_all_that_is_held_at_the_moment() -> None:
    held, half = Held(), b"x" * (MAX_HELD_BYTES // 2)
    for _ in range(3):
        hold(held, 1, half)
        assert not is_full(held)
        held.add(record())
        held.add(record(half[:-1]))
        assert not is_full(held), "a byte is left"
        held.add(record(b"x"))
        assert is_full(held)
        held.rows()
        held.answer([Unfilled.GONE])
        held.release()
        assert (len(held), is_full(held)) == (0, False)


def test_so_many_changes_are_enough() -> None:
    held = Held()
    for _ in range(MAX_HELD):
        assert not is_full(held)
        held.add(record())
    assert is_full(held)


def test_the_first_change_says_where_progress_ends() -> None:
    held = Held()
    hold(held, 3)
    held.add(record(b"value"))
    assert held.first == (STANDING, RowPlace(3, 0))
    held.rows()
    assert held.release() == [], "what was only asked for waits"
    held.answer([Unfilled.GONE])
    hold(held, 4)
    assert held.release() == [record(b"value")]
    assert held.first == (STANDING, RowPlace(4, 0))


def test_rows_are_asked_for_with_both_of_their_keys() -> None:
    held = Held()
    hold(held, 1)
    hold(held, 2, old_key=b"old")
    rows = held.rows()
    assert rows is not None
    assert (rows.table, rows.xids, rows.keys) == (TABLE, (7, 7), ((b"key",), (b"old", b"key")))
    held.answer([Filled((b"1", b"{}"), False)])
    rows = held.rows()
    assert rows is not None
    assert rows.keys == ((b"old", b"key"),), "what was answered is not asked for again"


def test_a_row_that_was_read_again_may_hold_the_document_null() -> None:
    held = Held()
    hold(held, 1)
    held.rows()
    held.answer([Filled((b"1", b"null"), True)])
    assert held.release() == [("t", b"key", b'{"id":1,"j":null}', b"v=1;json_null=1;toast=newer", None)]
