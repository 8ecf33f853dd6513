"""What goes out for records of keys that are, or were, in quarantine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.base.errors import EncodeError
from cdc.base.lsn import LSN
from cdc.contract.header import HeaderStamp, header_position
from cdc.contract.quarantine import (
    CELL_BYTES,
    ROW_BYTES,
    QuarantineEntry,
    RefusedRow,
    entry_key,
    parse_entry,
)
from cdc.contract.record import Ready
from cdc.kafka.publish.quarantine import Quarantine

TOPIC, ASIDE = "s.public.t", "s.__quarantine"
STAMP = HeaderStamp(LSN(4096), 7, 1_000_000)
BAD = RefusedRow.of("public.t", "too large", "make it smaller", [("id", "int4", b"1"), ("note", "text", None)])


def record(key: bytes, value: bytes | None, seq: int = 1, old: bytes | None = None) -> Ready:
    return (TOPIC, key, value, STAMP.header("u", seq, "f" * 16), old)


def entry_of(found: Ready) -> QuarantineEntry:
    assert found[0] == ASIDE
    assert found[2] is not None
    return parse_entry(found[1], found[2])


def quarantine(budget: int = 2, entries: Sequence[QuarantineEntry] = ()) -> Quarantine:
    return Quarantine(ASIDE, {"public.t": budget}, entries)


def test_other_records_pass_as_they_are() -> None:
    records = [record(b'{"id":1}', b"{}"), record(b'{"id":2}', None)]
    assert quarantine().judged(records) is records


def test_a_row_becomes_an_entry_and_a_tombstone() -> None:
    made = quarantine()
    first, second = made.judged([record(b'{"id":1}', BAD, old=b"before")])
    entry = entry_of(first)
    assert (entry.topic, entry.key, entry.table, entry.reason) == (TOPIC, b'{"id":1}', "public.t", "too large")
    assert (entry.position, entry.ts) == (header_position(second[3]), 1_000_000)
    assert [(each.name, each.size, each.content) for each in entry.cells] == [("id", 1, b"1"), ("note", None, b"")]
    assert second[:3] == (TOPIC, b'{"id":1}', None)
    assert second[3] == STAMP.header("d", 1, "f" * 16) + b";row=quarantined"
    assert second[4] == b"before"  # what readers had
    assert made.counts == (("public.t", 1),)
    assert made.judged([record(b'{"id":1}', BAD, old=b"before")])[1][4] is None  # they had nothing this time


@pytest.mark.parametrize("value", [b"{}", None], ids=["row", "tombstone"])
def test_the_next_record_of_the_key_takes_it_out(value: bytes | None) -> None:
    made = quarantine()
    (first, _) = made.judged([record(b'{"id":1}', BAD)])
    again = quarantine(entries=[entry_of(first)])  # of the next session
    for each in (made, again):
        removed, row = each.judged([record(b'{"id":1}', value, 2, b"old")])
        assert removed[:3] == (ASIDE, first[1], None)
        assert row == record(b'{"id":1}', value, 2)  # to readers, there was no row before
        assert each.counts == ()


def test_after_a_change_of_the_key_the_old_row_is_not_the_keys_own() -> None:
    records = [record(b'{"id":1}', None, old=b"old"), record(b'{"id":2}', BAD, old=b"old")]
    assert [each[4] for each in quarantine().judged(records)] == [b"old", None, None]


def test_one_key_more_than_the_budget_is_an_error_and_one_key_twice_is_not() -> None:
    made = quarantine(1)
    made.judged([record(b'{"id":1}', BAD), record(b'{"id":1}', BAD, 2)])
    with pytest.raises(EncodeError, match="one more row cannot be carried, and 1 of its keys are in quarantine"):
        made.judged([record(b'{"id":2}', BAD)])
    made.judged([record(b'{"id":1}', b"{}"), record(b'{"id":2}', BAD)])


def test_an_emptied_topic_has_no_entries_and_a_key_that_is_given_up_none() -> None:
    made = quarantine(3)
    made.judged([record(b'{"id":%d}' % each, BAD) for each in (1, 2, 3)])
    header = STAMP.header("t", 9, "f" * 16)
    assert [each[1] for each in made.dropped(TOPIC, [b'{"id":2}', b"none"], header)] == [entry_key(TOPIC, b'{"id":2}')]
    assert len(made.cleared(TOPIC, header)) == 2
    assert not made.keys(TOPIC)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["good", "bad", "gone"]))))
def test_the_topics_fold_to_what_there_is(changes: list[tuple[int, str]]) -> None:
    """Also if the session ends after each change, and the next one reads the entries."""
    rows: dict[bytes, str] = {}
    state: dict[tuple[str, bytes], bytes] = {}
    for seq, (number, what) in enumerate(changes, 1):
        key = b'{"id":%d}' % number
        rows[key] = what
        value = {"good": b"{}", "bad": BAD, "gone": None}[what]
        entries = [parse_entry(key, value) for (topic, key), value in state.items() if topic == ASIDE]
        for topic, own, written, *_ in quarantine(9, entries).judged([record(key, value, seq)]):
            state.pop((topic, own), None)
            if written is not None:
                state[topic, own] = written
    assert {key for topic, key in state if topic == TOPIC} == {key for key, what in rows.items() if what == "good"}
    bad = {entry_key(TOPIC, key) for key, what in rows.items() if what == "bad"}
    assert {key for topic, key in state if topic == ASIDE} == bad


@given(st.lists(st.tuples(st.text(max_size=63), st.none() | st.binary(max_size=3 * CELL_BYTES)), max_size=60))
def test_an_entry_fits_and_says_what_it_leaves_out(cells: list[tuple[str, bytes | None]]) -> None:
    row = RefusedRow.of("public.t", "r" * 5_000, "mend it", [(name, "text", cell) for name, cell in cells])
    entry = entry_of(quarantine().judged([record(b"\0\1\xff", row)])[0])
    assert entry.key == b"\0\1\xff"
    assert sum(len(each.content) for each in entry.cells) <= ROW_BYTES
    for (name, cell), kept in zip(cells, entry.cells, strict=True):
        assert (kept.name, kept.size) == (name, None if cell is None else len(cell))
        assert (cell or b"").startswith(kept.content)
        assert kept.is_cut == (kept.content != (cell or b""))
