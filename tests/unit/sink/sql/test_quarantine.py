"""The records that a table refuses are found by trials of parts of their batch, each undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from cdc.contract.ports import StoredRecord
from cdc.sink.sql.batch import Row, RowBatch
from cdc.sink.sql.quarantine import refused_of

TOPIC = "t"


def batch_of(rows: Sequence[Row], tombstones: int = 0) -> RowBatch:
    records = [StoredRecord(TOPIC, 0, offset, b"", b"", b"") for offset in range(tombstones + len(rows))]
    return RowBatch(TOPIC, records, [(-1 - n,) for n in range(tombstones)], rows)


def table_of(takes: Callable[[Row, Sequence[Row]], bool]) -> tuple[Callable[[RowBatch], str | None], list[int]]:
    """A trial at a table that takes rows one after the other; and the sizes of the trials."""
    sizes: list[int] = []

    def trial(batch: RowBatch) -> str | None:
        sizes.append(len(batch))
        held: list[Row] = []
        for row in batch.upserted:
            if not takes(row, held):
                return f"refuses {row}"
            held.append(row)
        return None

    return trial, sizes


def one_by_one(rows: Sequence[Row], takes: Callable[[Row, Sequence[Row]], bool]) -> list[int]:
    """The places of the rows that a table refuses that is given one row after the other."""
    held: list[Row] = []
    refused = []
    for place, row in enumerate(rows):
        if takes(row, held):
            held.append(row)
        else:
            refused.append(place)
    return refused


def is_good(row: Row, held: Sequence[Row]) -> bool:
    return bool(row[0] >= 0)


def is_good_and_alone(row: Row, held: Sequence[Row]) -> bool:
    """As with a unique column; and 7 is only taken after 6, as with a trigger."""
    return row[0] >= 0 and row not in held and (row[0] != 7 or (6,) in held)


@given(st.lists(st.integers(-3, 20), max_size=40), st.integers(0, 3))
def test_just_those_are_found_that_the_table_refuses_in_this_order(numbers: list[int], tombstones: int) -> None:
    rows = [(number,) for number in numbers]
    for takes in (is_good, is_good_and_alone):
        trial, _ = table_of(takes)
        found = refused_of(batch_of(rows, tombstones), len(rows), trial)
        assert [*found] == [tombstones + place for place in one_by_one(rows, takes)]
        assert all(found[tombstones + at] == f"refuses {rows[at]}" for at in one_by_one(rows, takes))


@given(st.lists(st.integers(-3, 20), max_size=40), st.integers(0, 5))
def test_it_ends_one_beyond_the_budget(numbers: list[int], most: int) -> None:
    rows = [(number,) for number in numbers]
    trial, _ = table_of(is_good)
    found = refused_of(batch_of(rows), most, trial)
    assert [*found] == one_by_one(rows, is_good)[: most + 1]


def test_each_of_them_costs_about_the_batch() -> None:
    for count in (1, 5, 40):
        rows: list[Row] = [(-1 if place % (1000 // count) == 0 else place,) for place in range(1000)]
        trial, sizes = table_of(is_good)
        assert len(refused_of(batch_of(rows), 100, trial)) == count
        assert sum(sizes) < (count + 12) * len(rows)
