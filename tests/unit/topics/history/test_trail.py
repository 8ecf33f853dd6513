"""The row at a moment, what each record changed, and how both are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from cdc.base.errors import ConfigError, TopicRefused
from cdc.base.lsn import LSN
from cdc.contract.history import HistoryRecord
from cdc.contract.record import Position
from cdc.topics.history.display import as_lines, as_table, entry_json, reach_line, row_json, row_lines
from cdc.topics.history.trail import Row, RowThen, Trail, TrailEntry, parse_moment, row_at, with_changes, within

ONE, TWO, THREE = {"id": "1", "n": '"a"'}, {"id": "1", "n": '"b"'}, {"id": "1", "n": "null"}
KEY = {"id": "1"}


def entry(op: str, lsn: int, new: Row | None = None, old: Row | None = None, *, moved: bool = False) -> TrailEntry:
    xid = None if op == "r" else lsn
    return TrailEntry(
        7, b'{"v":1}', HistoryRecord(op, Position(LSN(lsn), 1), xid, lsn * 1_000_000, "f", new, old, False), moved
    )


def trail(*entries: TrailEntry, first: int = 10, removed: bool = False) -> Trail:
    return Trail(entries, entry("u", first).record, removed, {"f": 2})


def at(where: Trail, moment: int, current: Row | None = None) -> Row | None:
    """The row at this LSN; the same must be true of the time just before it."""
    return row_at(where, LSN(moment), lambda: current).row


LIFE = trail(entry("c", 20, ONE), entry("u", 30, TWO), entry("d", 40, None, KEY), entry("c", 50, THREE))


@pytest.mark.parametrize(
    ("lsn", "row"), [(11, None), (20, None), (21, ONE), (30, ONE), (31, TWO), (41, None), (99, THREE)]
)
def test_changes_with_a_smaller_lsn_count(lsn: int, row: Row | None) -> None:
    assert at(LIFE, lsn) == row


@pytest.mark.parametrize(("second", "row"), [(10, None), (19, None), (20, ONE), (29, ONE), (30, TWO), (40, None)])
def test_at_a_time_changes_up_to_it_count(second: int, row: Row | None) -> None:
    assert row_at(LIFE, datetime.fromtimestamp(second, UTC), lambda: None).row == row


@pytest.mark.parametrize("moment", [LSN(10), LSN(9), datetime.fromtimestamp(9, UTC)])
def test_before_the_history_begins(moment: LSN | datetime) -> None:
    with pytest.raises(TopicRefused, match=r"reaches back to 1970-01-01 00:00:10.000000Z \(0/A\).*it began then"):
        row_at(LIFE, moment, lambda: ONE)
    with pytest.raises(TopicRefused, match="older records were removed"):
        row_at(trail(removed=True), moment, lambda: ONE)


def test_a_history_without_records() -> None:
    with pytest.raises(TopicRefused, match="holds no record yet"):
        row_at(Trail((), None, False, {}), LSN(20), lambda: ONE)


def test_a_row_that_did_not_change_since_the_history_begins() -> None:
    assert at(trail(), 20, current=ONE) == ONE
    assert at(trail(), 20, current=None) is None


@pytest.mark.parametrize(
    ("first", "row"),
    [
        (entry("r", 30, ONE), ONE),
        (entry("u", 30, TWO, ONE), ONE),
        (entry("d", 30, None, ONE), ONE),
        (entry("c", 30, ONE), None),
        (entry("c", 30, ONE, {"id": "2", "n": "1"}, moved=True), None),
    ],
)
def test_the_row_before_its_first_record(first: TrailEntry, row: Row | None) -> None:
    assert at(trail(first), 20, current=THREE) == row


@pytest.mark.parametrize("first", [entry("u", 30, TWO), entry("d", 30, None, KEY), entry("t", 30)])
def test_the_row_before_its_first_record_is_not_guessed(first: TrailEntry) -> None:
    with pytest.raises(TopicRefused, match="does not hold the row from before") as caught:
        at(trail(first), 20, current=THREE)
    assert "REPLICA IDENTITY FULL" in caught.value.remedy


def test_moments() -> None:
    assert parse_moment("0/1925728") == LSN(0x1925728)
    assert parse_moment("2026-03-29T01:30:00+02:00") == datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
    assert parse_moment("2026-03-29") == datetime(2026, 3, 29, tzinfo=UTC)
    for text in ("yesterday", "0/x", ""):
        with pytest.raises(ConfigError, match="neither a time nor an LSN"):
            parse_moment(text)


def test_since_and_until_include_their_ends() -> None:
    lsns = [each.record.position.lsn for each in LIFE.entries if within(each.record, LSN(30), LSN(40))]
    assert lsns == [30, 40]
    second = datetime.fromtimestamp(30, UTC)
    assert [each.record.position.lsn for each in LIFE.entries if within(each.record, second, second)] == [30]


def test_lines_tell_old_and_new() -> None:
    moved = trail(
        entry("r", 20, ONE),
        entry("u", 30, TWO),
        entry("u", 31, TWO),
        entry("d", 40, None, KEY, moved=True),
        entry("c", 50, THREE, {"id": "2", "n": "null"}, moved=True),
        entry("d", 60, None, THREE),
    )
    assert list(as_lines(with_changes(moved.entries))) == [
        "1970-01-01 00:00:20.000000Z  backfill  0/14  xid -",
        "    id = 1",
        '    n = "a"',
        "1970-01-01 00:00:30.000000Z  update    0/1E  xid 30",
        '    n: "a" → "b"',
        "1970-01-01 00:00:31.000000Z  update    0/1F  xid 31",
        "    nothing",
        "1970-01-01 00:00:40.000000Z  key change  0/28  xid 40",
        "    the row has another key from here on",
        "    id was 1",
        "1970-01-01 00:00:50.000000Z  key change  0/32  xid 50",
        "    the row had another key before",
        "    id: 2 → 1",
        "1970-01-01 00:01:00.000000Z  delete    0/3C  xid 60",
        "    id was 1",
        "    n was NULL",
    ]


def test_the_first_record_shows_what_is_known_before_it() -> None:
    [(_, changes)] = with_changes([entry("u", 30, TWO, ONE)])
    assert [(each.column, each.old, each.new) for each in changes] == [("n", '"a"', '"b"')]
    [(_, changes)] = with_changes([entry("u", 30, TWO)])
    assert [(each.column, each.old) for each in changes] == [("id", None), ("n", None)]


def test_the_table_of_a_terminal_holds_the_same() -> None:
    console = Console(width=200, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(as_table(with_changes(LIFE.entries)))
    for words in ("1970-01-01 00:00:30.000000Z", "update", "0/1E", '"a" → "b"', "delete"):
        assert words in captured.get()


def test_json_and_the_row() -> None:
    assert json.loads(entry_json(LIFE.entries[0], b'{"id":1}', 3)) == {
        "key": {"id": 1},
        "partition": 3,
        "offset": 7,
        "v": 1,
    }
    then = RowThen({"id": "1", "doc": '{"a": 1.50}'}, "why")
    assert row_json(then, b'{"id":1}', "0/1") == (
        '{"key":{"id":1},"as_of":"0/1","row":{"id":1,"doc":{"a": 1.50}},"because":"why"}'
    )
    assert list(row_lines(then)) == ["id   1", 'doc  {"a": 1.50}', "(why)"]
    assert list(row_lines(RowThen(None, "why"))) == ["no such row (why)"]
    assert reach_line(Trail((), None, False, {})).startswith("the history holds no record yet")
    assert reach_line(LIFE) == "the history reaches back to 1970-01-01 00:00:10.000000Z (0/A): it began then"
