"""Which reports of Kafka's client make a row late: those of rows that the brokers have, or may have."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError

from cdc.kafka.publish.row_producer import Group, RowProducer


class Reported(NamedTuple):
    """What a report has of a message; the client makes none without a broker."""

    def topic(self) -> str:
        return "t"

    def key(self) -> bytes:
        return b"k"

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("code", "is_late"),
    [
        (None, True),
        (KafkaError._PURGE_INFLIGHT, True),
        (KafkaError._FATAL, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError._PURGE_QUEUE, True),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
    ],
)
@pytest.mark.parametrize("wanted_until", [-math.inf, math.inf])
def test_after_the_time_for_it(code: int | None, is_late: bool, wanted_until: float) -> None:
    rows = RowProducer({"bootstrap.servers": "127.0.0.1:1"}, max_message_bytes=1_000)
    rows.wanted_until = wanted_until
    rows._reports(Group())(None if code is None else KafkaError(code), Reported())
    assert dict(rows.late) == ({"t": {b"k"}} if is_late and wanted_until < 0 else {})
    rows.close()
