"""States come from what moved while there was something to move, and name for whom somebody waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.base.errors import TopicUnavailable
from cdc.contract.record import Progress
from cdc.ops.status.document import DOWN, SICK, as_document, problems
from cdc.ops.status.parts import Part, Status
from cdc.ops.status.processes import ProcessStatus, SaidWait
from cdc.sink.replica import Blocker
from tests.unit.ops.status.test_document import HEALTHY, PROGRESS, SINK, SLOT, SOURCE

KAFKA_AWAY: Part[Progress] = Part(None, TopicUnavailable("no answer for 8 s", remedy="start the brokers"))
WAIT = SaidWait("Kafka to commit a transaction", 12.3, "look at the brokers")
BRIDGE = ProcessStatus("bridge", "answers", "http://127.0.0.1:9187", True)
SINK_PROCESS = ProcessStatus("sink", "answers", "http://127.0.0.1:9188", True)
BLOCKER = Blocker("public.t", "pid 4711 (application 'psql')", "SELECT pg_terminate_backend(4711);", 12.0, False)


def with_source(**changes: Any) -> Status:
    return replace(HEALTHY, source=Part(replace(SOURCE, **changes)))


def with_sink(**changes: Any) -> Status:
    return replace(HEALTHY, sink=Part(replace(SINK, **changes)))


def with_process(process: ProcessStatus, status: Status = HEALTHY) -> Status:
    return replace(status, processes=(process,))


@pytest.mark.parametrize(
    ("status", "part", "state", "words", "code"),
    [
        (with_process(replace(BRIDGE, is_ready=False, waits=(WAIT,))), "bridge", "waiting", "12 s for Kafka", DOWN),
        (
            with_process(replace(BRIDGE, state="hangs")),
            "bridge",
            "still",
            "does not answer at http://127.0.0.1:9187: it hangs",
            DOWN,
        ),
        (
            with_process(
                replace(BRIDGE, is_ready=False, error="no broker"),
                with_source(slot=replace(SLOT, active=False, active_pid=None)),
            ),
            "bridge",
            "retrying",
            "keeps failing and retrying: no broker",
            DOWN,
        ),
        (with_source(heard_s=12.0), "bridge", "still", "nothing to PostgreSQL for 12 s", DOWN),
        (with_process(replace(SINK_PROCESS, state="hangs")), "sink", "still", "it hangs", DOWN),
        (with_sink(still_s=30.0, applied_s=31.0), "sink", "still", "nothing in the replica for 30 s", DOWN),
        (
            with_sink(blockers=(BLOCKER,)),
            "sink",
            "blocked",
            "12 s for replica table public.t: pid 4711 (application 'psql') keeps it",
            SICK,
        ),
        (with_sink(blockers=(replace(BLOCKER, table=""),)), "sink", "blocked", "12 s for a row or transaction", SICK),
        (
            with_sink(blockers=(replace(BLOCKER, seconds=0.0, is_left_out=True),)),
            "sink",
            "blocked",
            "left out for 0 s, the others continue: pid 4711",
            SICK,
        ),
        (
            with_process(replace(SINK_PROCESS, is_ready=False), with_sink(running=False)),
            "sink",
            "waiting",
            "does not write",
            DOWN,
        ),
        (with_sink(running=False), "sink", "down", "no sink runs", DOWN),
        (
            with_process(ProcessStatus("serve", "hangs", "http://127.0.0.1:8090")),
            "view",
            "still",
            "the service's process",
            DOWN,
        ),
    ],
)
def test_what_stands_still_is_told(status, part, state, words, code):
    (problem,) = problems(status)
    assert (problem.part, problem.exit_code) == (part, code)
    assert words in problem.text
    assert problem.remedy
    told = as_document(status, now_us=0)[part]
    assert told["state"] == state
    assert words in told["why"]


@pytest.mark.parametrize(
    "status",
    [
        with_source(heard_s=2.4),
        with_sink(still_s=4.0, applied_s=31.0),
        with_sink(still_s=30.0, applied_s=2.0),
        with_sink(still_s=None, applied_s=600.0),  # a long statement is at work
        with_sink(lsn=PROGRESS.lsn, applied_lsn=PROGRESS.lsn, still_s=600.0, applied_s=600.0),
        with_sink(blockers=(replace(BLOCKER, seconds=0.3),)),
        with_process(replace(BRIDGE, waits=())),
        with_process(replace(BRIDGE, state="silent")),
    ],
)
def test_what_moves_or_has_nothing_to_move_is_healthy(status):
    assert problems(status) == []


def test_a_sink_that_answers_is_not_told_to_be_started_while_kafka_is_away():
    """It was called "not running", with the remedy "start the sink", while its process answered."""
    away = replace(with_sink(running=False), topics=KAFKA_AWAY)
    waiting = with_process(replace(SINK_PROCESS, is_ready=False, waits=(WAIT,)), away)
    assert as_document(waiting, now_us=0)["sink"]["running"]
    assert not any("start the sink" in each.remedy for each in problems(waiting))
    unasked = next(each for each in problems(away) if each.part == "sink")
    assert "fix Kafka first" in unasked.remedy


def test_a_bridge_from_which_nothing_comes_is_behind_by_that():
    """PostgreSQL measures the lag at each confirmation: without one it stays at 0.0 s."""
    silent = replace(with_source(heard_s=23.0, confirm_lag_s=None), topics=KAFKA_AWAY)
    assert as_document(silent, now_us=0)["source"]["slot"]["lag_seconds"] == 23.0
