"""A line of librdkafka's log tells that the end of a transaction was asked for twice."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cdc.kafka.publish.transaction_end import TransactionEndLog

_LINE = "%s [%s] %s"
_CLIENT = "rdkafka#producer-1"


def ended(error: str) -> tuple[str, str, str]:
    return (
        "ENDTXN",
        _CLIENT,
        f"[thrd:main]: EndTxn returned {error} in state CommittingTransaction (may_retry=true)",
    )


@pytest.mark.parametrize(
    ("error", "is_repeated"),
    [
        ("NO_ERROR", False),
        ("COORDINATOR_NOT_AVAILABLE", False),
        ("CONCURRENT_TRANSACTIONS", False),
        ("_TRANSPORT", True),
        ("_TIMED_OUT", True),
        ("_TIMED_OUT_QUEUE", True),
    ],
)
def test_a_request_without_an_answer_may_still_arrive(error: str, is_repeated: bool) -> None:
    log = TransactionEndLog({})
    log.log(logging.DEBUG, _LINE, *ended(error))
    log.log(logging.DEBUG, _LINE, *ended("NO_ERROR"))
    assert log.is_repeated is is_repeated


SENT, ANSWERED = (
    ("SEND", _CLIENT, "[thrd:b]: GroupCoordinator/1: Sent TxnOffsetCommitRequest (v3, 161 bytes @ 0, CorrId 12)"),
    (
        "RECV",
        _CLIENT,
        "[thrd:b]: GroupCoordinator/1: Received TxnOffsetCommitResponse (v3, 26 bytes, CorrId 12, rtt 1ms)",
    ),
)
OTHER = "SEND", _CLIENT, "[thrd:b]: b/1: Sent ProduceRequest (v10, 161 bytes @ 0, CorrId 12)"


@pytest.mark.parametrize(
    ("lines", "is_repeated"),
    [
        ((SENT, OTHER, ANSWERED, SENT, ANSWERED), False),
        ((SENT, OTHER, SENT, ANSWERED), True),
        ((SENT,), False),
    ],
)
def test_offsets_that_were_sent_twice_without_an_answer_in_between(
    lines: tuple[tuple[str, str, str], ...], is_repeated: bool
) -> None:
    """A broker's answer, even that it is not ready, means that this request is not on its way any more."""
    log = TransactionEndLog({}, stores_offsets=True)
    assert log.settings == {"debug": "eos,protocol"}
    for line in lines:
        log.log(logging.DEBUG, _LINE, *line)
    assert log.is_repeated is is_repeated


@pytest.mark.parametrize(
    ("options", "debug", "is_logged"), [({}, "eos", False), ({"debug": "broker"}, "broker,eos", True)]
)
def test_lines_for_debugging_are_logged_for_those_who_asked(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any], debug: str, is_logged: bool
) -> None:
    caplog.set_level(logging.DEBUG, "cdc.kafka")
    log = TransactionEndLog(options)
    assert log.settings == {"debug": debug}
    log.log(logging.DEBUG, _LINE, "BRKMAIN", _CLIENT, "a line for debugging")
    log.log(logging.ERROR, _LINE, "TXNERR", _CLIENT, "a line for everybody")
    assert ("a line for debugging" in caplog.text) is is_logged
    assert "a line for everybody" in caplog.text
