"""A group's reader: what the client reports, in this project's words."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from cdc.kafka.replay.group import is_fenced

_TEXT = "Broker: Static consumer fenced by other consumer with same group.instance.id"


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError.FENCED_INSTANCE_ID),
        KafkaError(KafkaError._FATAL, f"Fatal error: {_TEXT}: Fatal consumer error: {_TEXT}"),
        KafkaError(KafkaError._FATAL, "Fatal error: FENCED_INSTANCE_ID"),
    ],
)
def test_another_process_of_our_name_is_known_in_each_form(error: KafkaError) -> None:
    assert is_fenced(error)


@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError._ALL_BROKERS_DOWN, KafkaError.UNKNOWN_MEMBER_ID])
def test_nothing_else_is_taken_for_it(code: int) -> None:
    assert not is_fenced(KafkaError(code))
