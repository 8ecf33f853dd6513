"""What the records of the progress topic say about a request, and what people see of it."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from cdc.bridge.asking.display import as_lines, as_live, as_table, ending_line, total_line
from cdc.bridge.asking.follow import display
from cdc.bridge.asking.outcome import Following
from cdc.bridge.backfill.pace import average_rate, remaining_rows, seconds_left, share
from cdc.bridge.backfill.plan import OPEN
from cdc.contract.backfill import backfill_key, backfill_value, request_key, request_value
from cdc.contract.ports import StoredRecord
from cdc.contract.record import BackfillProgress, BackfillRequest, LeafProgress
from tests.support.topic_writer import FIRST_BACKFILL

HALF = LeafProgress("public", "t", 1, 100, ((0, 50),))
WHOLE = LeafProgress("public", "t", 1, 100, ((0, OPEN),))
RUNNING = replace(
    FIRST_BACKFILL, table="public.t", request="me", estimated_rows=1_000, rows=500, leaves=(HALF,), started_at=0
)


def at(seconds: float, **changes: object) -> BackfillProgress:
    return replace(RUNNING, updated_at=int(seconds * 1e6), **changes)  # type: ignore[arg-type]  # keywords, checked when it runs


def stored(progress: BackfillProgress) -> StoredRecord:
    return StoredRecord("p", 0, 0, backfill_key(progress.table), backfill_value(progress), b"")


def test_pace() -> None:
    assert share(RUNNING) == 0.5
    assert remaining_rows(RUNNING) == 500
    assert average_rate(at(10)) == 50
    assert seconds_left(RUNNING, 50.0) == 10
    assert seconds_left(replace(RUNNING, state="paused"), 50.0) is None
    assert remaining_rows(replace(RUNNING, state="cancelled")) == 0


def test_rows_tell_of_the_chunks_under_way_and_of_no_more() -> None:
    nothing_done = replace(HALF, done=())
    assert share(replace(RUNNING, leaves=(nothing_done,))) == 0.5
    assert share(replace(RUNNING, leaves=(nothing_done,), rows=2_000)) == 0.99
    assert share(replace(RUNNING, leaves=(replace(nothing_done, blocks=2_048_000),), rows=2_000)) == 0.001
    assert share(replace(RUNNING, leaves=(nothing_done,), estimated_rows=0)) == 0


def test_the_first_request_that_is_seen_where_none_is_named() -> None:
    following = Following(None, {"public.t": None})
    following.take(at(1, request="initial", state="done"))
    assert following.is_over
    following.take(at(2, request="newer"))
    assert following.replaced == {"public.t"}


def test_only_the_request_that_is_meant_counts_until_another_takes_its_place() -> None:
    following = Following("me", {"public.t": "me"})
    following.saw([stored(at(1, request="older")), stored(at(1, table="public.other"))])
    assert following.unseen == ("public.t",)
    assert not following.is_taken
    following.saw([stored(at(2))])
    assert (following.is_taken, following.is_over) == (True, False)
    following.saw([stored(at(3, request="newer"))])
    assert following.replaced == {"public.t"}
    assert following.is_over


def test_taken_when_its_record_is_gone() -> None:
    following = Following("me", {"public.t": "me"})
    request = BackfillRequest("me", "start", ("public.t",))
    following.saw([StoredRecord("p", 0, 0, request_key("me"), request_value(request), b"")])
    assert total_line(following) == "waiting for a bridge to take the request"
    following.saw([StoredRecord("p", 0, 1, request_key("me"), None, b"")])
    assert following.is_taken
    assert not following.is_over, "the table is not even begun"


def test_rate_of_the_last_seconds_and_time_left() -> None:
    following = Following("me", {"public.t": "me"})
    for second in range(60):
        following.take(at(second, rows=0 if second < 30 else (second - 30) * 10))
    assert following.rate("public.t") == 10.0
    assert following.seconds_left == 50.0
    following.take(at(60, state="done", leaves=(WHOLE,)))
    assert following.rate("public.t") is None
    assert following.is_over


def test_lines_elsewhere_than_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    following = Following("me", {"public.t": "me", "public.u": "me"})
    with display(console) as show:
        for record in (
            at(1, reason="the standby lags"),
            at(2, rows=501),
            at(3, rows=502),
            at(90, state="done", rows=1_000, sweep=True, swept=3),
            at(4, table="public.u", state="failed", reason="no\n  remedy: yes", rows=0),
        ):
            following.take(record)
            show(following)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert lines[0] == "0 of 2 tables over, 500 rows (25%); public.t running: the standby lags"
    assert [line for line in lines if "tables over" not in line] == [
        "public.t: done, 1,000 rows published, 3 keys deleted that the table does not have in 1 min 30 s",
        "public.u: failed, 0 rows published in 4.0 s",
        "  no",
        "  remedy: yes",
    ]


def test_list_for_a_terminal_and_for_elsewhere() -> None:
    known = [at(10, rate=50, whole=True), at(10, table="public.u", state="paused", where="id > 1")]
    asked = [BackfillRequest("r", "start", ("public.w",))]
    assert as_lines(known, asked) == [
        "public.t: running, 50%, 500 of about 1,000 rows, 50 rows/s, 10 s left, initial, at most 50 rows/s",
        "public.u: paused, 50%, 500 of about 1,000 rows, 50 rows/s, initial, topic incomplete, where id > 1",
        "public.w: start asked, no bridge has taken it yet",
    ]
    following = Following(None, {"public.t": "me"})
    following.take(known[0])
    console = Console(width=200, file=io.StringIO())
    console.print(as_table(known, asked), as_live(following))
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    for words in ("public.w", "start asked", "topic incomplete, where id > 1", "0 of 1 tables over, 500 rows (50%)"):
        assert words in shown


def test_of_a_table_that_is_over_the_average_rate_stays() -> None:
    following = Following(None, {"public.t": None})
    following.take(at(10, state="done", rows=1_000))
    console = Console(width=80, file=io.StringIO())
    console.print(as_live(following))
    (row,) = (line for line in console.file.getvalue().splitlines() if "public.t" in line)  # type: ignore[attr-defined]  # a StringIO
    assert row.split()[-3:] == ["1,000", "100", "done"]


def test_an_hour_is_told_in_hours() -> None:
    assert ending_line(at(3_725)).endswith("in 1 h 02 min")
