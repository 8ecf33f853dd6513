"""Which reports of Kafka's client make a row late: those of rows that the brokers have, or may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError

from cdc.kafka.publish import row_producer
from cdc.kafka.publish.row_producer import RowProducer


class Reported(NamedTuple):
    """What a report has of a message; the client makes none without a broker."""

    def topic(self) -> str:
        return "t"

    def key(self) -> bytes:
        return b"k"

    def __len__(self) -> int:
        return 1


class Client:
    """Kafka's client, as far as rows need it: it reports each of them in the same way, when it is polled."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error
        self._unreported: list[Callable[[KafkaError | None, Reported], None]] = []

    def __len__(self) -> int:
        return len(self._unreported)

    def produce(self, *args: Any) -> None:
        self._unreported.append(args[4])

    def poll(self, _timeout_s: float) -> None:
        while self._unreported:
            self._unreported.pop()(self._error, Reported())

    def list_topics(self, *_args: Any) -> Any:
        """There is no topic, so nothing waits for a partition's first row."""
        return SimpleNamespace(topics={"t": SimpleNamespace(error="none", partitions={})})

    def purge(self) -> None: ...


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
def test_after_the_time_for_it(
    code: int | None, is_late: bool, wanted_until: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = None if code is None else KafkaError(code)
    monkeypatch.setattr(row_producer, "Producer", lambda *_, **__: Client(error))
    rows = RowProducer({"bootstrap.servers": "127.0.0.1:1"}, max_message_bytes=1_000)
    rows.wanted_until = wanted_until
    rows.send([("t", b"k", b"v", b"v=1", None)])
    rows.close()
    assert dict(rows.late) == ({"t": {b"k"}} if is_late and wanted_until < 0 else {})
