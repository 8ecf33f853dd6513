"""An outage of a server: a line when it begins, one a minute, one when the work goes on."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from cdc.base.daemon.supervise import OutageLog
from cdc.base.errors import CdcError, SourceUnavailable, TopicUnavailable

GONE = SourceUnavailable("cannot reach PostgreSQL", remedy="is the server up?")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def told(outage: OutageLog, clock: Clock, errors: list[CdcError]) -> list[str]:
    """What it says at warning of one attempt a second, each of which ends so."""
    with capture_logs() as lines:
        for error in errors:
            outage.failed(error, 1.0)
            clock.now += 1
    return [line["error"] for line in lines if line["log_level"] == "warning"]


def test_five_minutes_without_a_server(clock: Clock) -> None:
    outage = OutageLog(clock)
    assert len(told(outage, clock, [GONE] * 300)) == 5
    with capture_logs() as lines:
        outage.works()
        outage.works()
    (line,) = lines
    assert (line["event"], line["log_level"], line["after_s"], line["attempts"]) == ("works again", "info", 300.0, 300)
    assert len(told(outage, clock, [GONE])) == 1, "the next one is told at once"


def test_what_has_another_cause_is_told_at_once(clock: Clock) -> None:
    away = TopicUnavailable("cannot reach Kafka", remedy="is a broker up?")
    locked = SourceUnavailable("slot s could not be made", remedy="SELECT pg_terminate_backend(7);")
    assert told(OutageLog(clock), clock, [GONE, away, GONE, locked, away]) == [
        GONE.message,
        away.message,
        locked.message,
    ]
