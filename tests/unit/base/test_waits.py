"""For whom a process waits: what is worth a word, and in which words."""

from __future__ import annotations

import threading

from structlog.testing import capture_logs

from cdc.base.daemon import wait_log
from cdc.base.daemon.wait_log import WaitLog
from cdc.base.waits import LONG_S, Waits


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_wait_is_told_when_it_is_long_and_forgotten_when_it_is_over() -> None:
    clock = Clock()
    waits = Waits(clock)
    with waits.on("kafka", "Kafka to commit", "look"):
        assert waits.long() == []
        clock.now += LONG_S
        assert waits.longest_s("kafka") == LONG_S
        assert waits.longest_s("source") == 0
        assert waits.document() == [{"for": "Kafka to commit", "whom": "kafka", "seconds": LONG_S, "remedy": "look"}]
    assert waits.document() == []


def test_a_thread_waits_for_what_it_began_last() -> None:
    """The loop has asked the source, and stands in a commit: PostgreSQL is not to blame."""
    clock = Clock()
    waits = Waits(clock)
    asked = waits.begin("source", "PostgreSQL to answer", "look")
    with waits.on("kafka", "Kafka to commit", "look"):
        clock.now += 60
        assert [each["whom"] for each in waits.document()] == ["kafka"]
    waits.end(asked)
    assert waits.document() == []


def test_of_several_threads_that_wait_for_one_server_the_longest_is_told() -> None:
    clock = Clock()
    waits = Waits(clock)
    first = waits.begin("kafka", "Kafka to commit", "look")
    clock.now += 2
    other = threading.Thread(target=waits.begin, args=("kafka", "Kafka to answer", "look"))
    other.start()
    other.join()
    clock.now += 60
    assert [(each["for"], each["seconds"]) for each in waits.document()] == [("Kafka to commit", 62.0)]
    waits.end(first)
    assert [each["seconds"] for each in waits.document()] == [60.0]


def test_the_log_says_it_once_then_once_a_minute_then_that_it_is_over() -> None:
    clock = Clock()
    waits = Waits(clock)
    told = WaitLog(threading.Event(), waits)
    with capture_logs() as logs:
        number = waits.begin("replica", "the replica to take rows", "look")
        told.look(0)
        assert logs == []
        clock.now += LONG_S
        for at in range(int(wait_log.AGAIN_S) + 1):
            told.look(float(at))
        assert [each["event"] for each in logs] == ["waiting", "waiting"]
        assert logs[0]["waits_for"] == "the replica to take rows"
        assert logs[0]["remedy"] == "look"
        waits.end(number)
        told.look(90.0)
        told.look(91.0)
    assert [each["event"] for each in logs] == ["waiting", "waiting", "no longer waiting"]
