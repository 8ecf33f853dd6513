"""What the numbers of ``cdc status`` mean, and which of them want attention."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cdc.base.errors import SourceRefused, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.scope.left_out import LeftOut
from cdc.contract.record import LeafProgress, Position, Progress, SourceIdentity
from cdc.contract.slot_state import SlotState
from cdc.ops.status.display import as_lines, as_table
from cdc.ops.status.document import DOWN, SICK, as_document, problems
from cdc.ops.status.parts import Part, SourceStatus, Status
from cdc.sink.replica import SinkStatus, TableStatus
from tests.support.topic_writer import FIRST_BACKFILL

SLOT = SlotState(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active=True,
    active_pid=77,
    confirmed_flush_lsn=LSN(9_000),
    restart_lsn=LSN(5_000),
    wal_status="reserved",
    safe_wal_size=None,
    retained_bytes=5_000,
    lag_bytes=1_208,
    invalidation_reason=None,
)
SOURCE = SourceStatus(wal_lsn=LSN(10_000), now_us=60_000_000, slot=SLOT, confirm_lag_s=0.25)
PROGRESS = Progress(LSN(9_000), None, 59_000_000, SourceIdentity("1", 1, 1))
TABLE = TableStatus("shop.public.t", "public.t", "exact", 12, "")
SINK = SinkStatus(LSN(8_000), LSN(8_000), 57_000_000, running=True, tables=(TABLE,))
HEALTHY = Status("shop", "cdc_shop", Part(SOURCE), Part(PROGRESS), Part(SINK))


def test_lags_are_measured_by_the_clock_of_the_source():
    document = as_document(HEALTHY, now_us=999_000_000)
    assert document["source"]["slot"]["lag_seconds"] == 0.25
    assert (document["topics"]["lag_bytes"], document["topics"]["age_seconds"]) == (1_000, 1.0)
    assert (document["sink"]["lag_bytes"], document["sink"]["lag_seconds"]) == (1_000, 3.0)


def test_the_lag_of_the_slot_is_that_of_the_lsns_shown_beside_it():
    """The slot's own number is of another moment: 208 bytes were written in between."""
    assert as_document(HEALTHY, now_us=0)["source"]["slot"]["lag_bytes"] == 1_000
    behind = replace(SOURCE, wal_lsn=LSN(8_999))
    assert as_document(replace(HEALTHY, source=Part(behind)), now_us=0)["source"]["slot"]["lag_bytes"] == 0


def test_a_replica_that_was_level_a_moment_ago_is_not_behind_by_the_minutes_without_a_commit():
    """Ten idle minutes counted: they are between two commits, and nothing was missing meanwhile."""
    idle = replace(SINK, commit_ts=57_000_000 - 600_000_000, level_s=0.4, applied_s=0.7)
    assert as_document(replace(HEALTHY, sink=Part(idle)), now_us=0)["sink"]["lag_seconds"] == 0.4
    moved_only = replace(idle, commit_ts=PROGRESS.commit_ts)
    assert as_document(replace(HEALTHY, sink=Part(moved_only)), now_us=0)["sink"]["lag_seconds"] == 0.7


def test_a_table_that_is_left_out_is_a_problem_only_if_it_is_spelled_out():
    left = LeftOut("public.log", "table public.log has no primary key", "ALTER …", is_named=False, cause="table")
    by_pattern = replace(HEALTHY, source=Part(replace(SOURCE, left_out=(left,))))
    document = as_document(by_pattern, now_us=0)
    assert document["source"]["left_out"] == [{"table": left.table, "reason": left.reason, "remedy": left.remedy}]
    assert document["healthy"]
    assert "left out table public.log has no primary key" in as_lines(document)
    named = replace(HEALTHY, source=Part(replace(SOURCE, left_out=(replace(left, is_named=True),))))
    assert [(each.text, each.exit_code) for each in problems(named)] == [
        ("table public.log has no primary key; it is not captured", SICK)
    ]


def test_own_clock_when_the_source_is_out_of_reach():
    down = replace(HEALTHY, source=Part(None, SourceUnavailable("gone", remedy="try again")))
    document = as_document(down, now_us=62_000_000)
    assert document["topics"]["age_seconds"] == 3.0
    assert document["topics"]["lag_bytes"] is None


def test_replica_that_has_everything_published_is_not_behind():
    level = replace(SINK, lsn=PROGRESS.lsn)
    document = as_document(replace(HEALTHY, sink=Part(level)), now_us=0)
    assert (document["sink"]["lag_bytes"], document["sink"]["lag_seconds"]) == (0, 0.0)


def test_nobody_knows_how_far_a_replica_is_behind_topics_that_are_silent():
    document = as_document(replace(HEALTHY, topics=Part(None, SourceUnavailable("gone", remedy="try again"))), now_us=0)
    assert (document["sink"]["lag_bytes"], document["sink"]["lag_seconds"]) == (None, None)


@pytest.mark.parametrize(
    ("slot", "seconds"),
    [
        (replace(SLOT, confirmed_flush_lsn=LSN(10_000)), 0.0),
        (SLOT, 0.25),
        (replace(SLOT, active=False), None),
    ],
)
def test_seconds_that_the_slot_is_behind(slot, seconds):
    document = as_document(replace(HEALTHY, source=Part(replace(SOURCE, slot=slot))), now_us=0)
    assert document["source"]["slot"]["lag_seconds"] == seconds


@pytest.mark.parametrize(
    ("status", "words", "exit_code"),
    [
        (replace(HEALTHY, source=Part(None, SourceUnavailable("gone", remedy="try again"))), "gone", DOWN),
        (replace(HEALTHY, source=Part(None, SourceRefused("no", remedy="try again"))), "no", DOWN),
        (replace(HEALTHY, source=Part(replace(SOURCE, slot=None))), "there is no slot cdc_shop", DOWN),
        (replace(HEALTHY, source=Part(replace(SOURCE, slot=replace(SLOT, active=False)))), "no bridge reads", DOWN),
        (replace(HEALTHY, source=Part(replace(SOURCE, slot=replace(SLOT, wal_status="lost")))), "is lost", SICK),
        (
            replace(HEALTHY, source=Part(replace(SOURCE, slot=replace(SLOT, invalidation_reason="idle_timeout")))),
            "idle_timeout",
            SICK,
        ),
        (
            replace(HEALTHY, source=Part(replace(SOURCE, slot=replace(SLOT, wal_status="unreserved")))),
            "about to be lost",
            SICK,
        ),
        (replace(HEALTHY, topics=Part(None)), "nothing is published", DOWN),
        (replace(HEALTHY, sink=Part(replace(SINK, running=False))), "no sink runs", DOWN),
        (
            replace(HEALTHY, sink=Part(replace(SINK, tables=(replace(TABLE, state="stopped", reason="why"),)))),
            "public.t is stopped: why",
            SICK,
        ),
    ],
)
def test_problem_is_told_with_its_exit_code(status, words, exit_code):
    (problem,) = problems(status)
    assert words in problem.text
    assert problem.exit_code == exit_code
    assert words in "\n".join(as_lines(as_document(status, now_us=0)))


def test_lines():
    partial = replace(PROGRESS, partial=Position(LSN(9_500), 12))
    assert as_lines(as_document(replace(HEALTHY, topics=Part(partial)), now_us=0)) == [
        "source  WAL 0/2710, slot cdc_shop read by pid 77, confirmed 0/2328, lag 1,000 B and 0.2 s; "
        "keeps 4.9 KiB of WAL (reserved)",
        "topics  published 0/2328 and part of a big transaction, lag 1,000 B; newest commit 1.0 s ago",
        "sink    running, cut 0/1F40, lag 1,000 B and 3.0 s",
        "table   public.t: exact, 12 rows applied",
        "shop is healthy",
    ]


BACKFILL = replace(
    FIRST_BACKFILL, table="public.t", estimated_rows=1_000, rows=500, started_at=0, updated_at=10_000_000
)


def test_backfills_are_shown_and_those_that_are_done_counted():
    running = replace(BACKFILL, leaves=(LeafProgress("public", "t", 1, 100, ((0, 50),)),), reason="the standby lags")
    done = replace(BACKFILL, table="public.u", state="done", whole=True)
    document = as_document(replace(HEALTHY, backfills=(running, done)), now_us=0)
    assert document["healthy"]
    assert as_lines(document)[2:4] == [
        "backfill public.t running, 50%, 500 of about 1,000 rows, 50 rows/s, 10.0 s left, topic incomplete: "
        "the standby lags",
        "backfill 1 table done",
    ]
    assert document["backfills"][0] == {
        "table": "public.t",
        "state": "running",
        "cause": "initial",
        "whole": False,
        "rows": 500,
        "estimated_rows": 1_000,
        "done": 0.5,
        "rows_per_second": 50.0,
        "seconds_left": 10.0,
        "reason": "the standby lags",
        "updated": "1970-01-01T00:00:10+00:00",
    }


@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        (
            {"state": "failed", "reason": "no right\n  remedy: GRANT it;"},
            "backfill of public.t failed: no right",
            "GRANT it;\nthen: cdc backfill public.t",
        ),
        ({"state": "failed", "reason": "why", "whole": True}, "failed: why", "cdc backfill public.t"),
        ({"state": "cancelled"}, "does not hold every row: its backfill was cancelled", "cdc backfill public.t"),
        ({"state": "cancelled", "sweep": True}, "was cancelled", "cdc backfill public.t --sweep"),
        ({"state": "failed", "sweep": True, "reason": "why"}, "failed: why", "cdc backfill public.t --sweep"),
        (
            {"state": "failed", "where": "id > 7", "whole": True, "reason": "why"},
            "failed: why",
            "cdc backfill public.t --where 'id > 7'",
        ),
    ],
)
def test_backfill_that_needs_the_operator(changes, words, remedy):
    (problem,) = problems(replace(HEALTHY, backfills=(replace(BACKFILL, **changes),)))
    assert words in problem.text
    assert (problem.remedy, problem.exit_code) == (remedy, SICK)


HALF_LOADED = replace(
    FIRST_BACKFILL,
    topic=TABLE.topic,
    leaves=(LeafProgress("public", "t", filenode=1, blocks=1_000, done=((0, 500),)),),
)


@pytest.mark.parametrize(
    ("state", "backfills", "line"),
    [
        ("loading", (HALF_LOADED,), "loading, 12 rows applied; its backfill is running, 50% of it is published"),
        ("loading", (), "loading, 12 rows applied; its topic does not hold every row yet, or was not read to its end"),
        ("rebuilding", (), "rebuilding, 12 rows applied; it is replayed from its topic: it was gone"),
        (
            "catching_up",
            (),
            "catching_up, 12 rows applied; it was exact; now there is no LSN at which it is known to equal the source",
        ),
    ],
)
def test_table_that_gets_exact_by_itself_is_shown_and_is_no_problem(state, backfills, line):
    other = replace(TABLE, topic="shop.public.u", replica_table="public.u")
    sink = replace(SINK, tables=(replace(TABLE, state=state, reason="it was gone"), other))
    status = replace(HEALTHY, sink=Part(sink), backfills=backfills)
    document = as_document(status, now_us=0)
    assert (document["healthy"], document["sink"]["exact"], problems(status)) == (True, False, [])
    lines = as_lines(document)
    assert f"table   public.t: {line}" in lines
    assert "table   public.u: exact, 12 rows applied" in lines
    assert lines[-1] == f"shop is healthy; replica tables that are not exact yet: 1 {state}"


def test_a_replica_that_knows_no_moment_of_the_source_is_not_exact():
    behind = replace(SINK, lsn=None, applied_lsn=LSN(8_000))
    document = as_document(replace(HEALTHY, sink=Part(behind)), now_us=0)
    assert (document["healthy"], document["sink"]["exact"], document["sink"]["unapplied_bytes"]) == (True, False, 1_000)
    assert "rows up to 0/1F40, lag 1,000 B" in "\n".join(as_lines(document))
    assert as_document(HEALTHY, now_us=0)["sink"]["exact"]


def test_terminal_shows_the_same():
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(as_table(as_document(replace(HEALTHY, topics=Part(None)), now_us=0)))
    shown = captured.get()
    for words in ("cut 0/1F40", "public.t", "nothing is published yet", "shop is not healthy"):
        assert words in shown
