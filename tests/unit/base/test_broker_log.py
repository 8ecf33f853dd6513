"""An outage of Kafka: a line when it begins, one a minute, one when it is over; other lines pass."""

from __future__ import annotations

import logging

import pytest

from cdc.base.broker_log import BrokerLog

LINE = "[thrd:db:9092/bootstrap]: db:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> BrokerLog:
    return BrokerLog(logging.getLogger("cdc.kafka.test"), clock)


def fails(log: BrokerLog) -> None:
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", LINE)


def test_eight_minutes_without_a_broker(log: BrokerLog, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(8 * 60):
        for _ in range(9):
            fails(log)
        clock.now += 1
    log.answered()
    log.answered()
    told = caplog.messages
    assert len(told) == 9
    assert told[0].startswith("Kafka does not answer: db:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: ")
    assert "is kafka.bootstrap right, and a broker up?" in told[0]
    assert told[1] == (
        "Kafka has not answered for 60 s: db:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: "
        "Connection refused (540 such lines)"
    )
    assert told[-1] == "Kafka is back, after 480 s"


def test_one_broker_of_several_is_away(log: BrokerLog, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(600):
        fails(log)
        log.answered()
        clock.now += 0.2
    assert len(caplog.messages) == 4, "two lines a minute"


def test_another_line_of_the_client_passes(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "rdkafka#consumer-1", "a setting does nothing")
    log.log(logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#producer-1", "Not coordinator: retrying")
    log.answered()
    assert caplog.messages == [
        "CONFWARN [rdkafka#consumer-1] a setting does nothing",
        "GETPID [rdkafka#producer-1] Not coordinator: retrying",
    ]


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("ADDPARTS", 'TxnCoordinator/1: Failed to add partition "t" [0] to transaction: Broker: Producer attempted an '
         "operation with an old epoch"),
        ("TXNERR", "Fatal transaction error: Local: This instance has been fenced by a newer instance (_FENCED)"),
        ("ERROR", "Broker: There is a newer producer with the same transactionalId which fences the current one"),
        ("FATAL", "Fatal error: Local: This instance has been fenced by a newer instance"),
    ],
)  # fmt: skip
def test_a_takeover_is_no_alarm(log: BrokerLog, caplog: pytest.LogCaptureFixture, mark: str, text: str) -> None:
    with caplog.at_level(logging.INFO):
        log.log(logging.CRITICAL, "%s [%s] %s", mark, "rdkafka#producer-4", f"[thrd:main]: {text}")
    assert [each.levelname for each in caplog.records] == ["INFO"]


def test_a_coordinator_that_has_just_begun_is_no_alarm(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "[thrd:main]: Failed to acquire transactional PID from broker: Broker: Coordinator load in progress: retrying"
    )
    with caplog.at_level(logging.INFO):
        log.log(logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#producer-4", text)
    assert caplog.messages == []


def test_an_option_of_the_other_kind_of_client_is_no_news(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    """``kafka.options`` are given to readers and writers alike."""
    said = "Configuration property linger.ms is a producer property and will be ignored by this consumer instance"
    log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "rdkafka#consumer-1", said)
    log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "rdkafka#consumer-1", "Configuration property x is deprecated")
    assert [each.partition("] ")[2] for each in caplog.messages] == ["Configuration property x is deprecated"]
