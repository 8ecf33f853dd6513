"""Checks every two seconds whether Kafka answers: to a consumer, silent brokers look like topics without new records.

librdkafka needs a minute or more to notice that a broker hangs. So a thread with a client of its own asks the leader of
the progress topic for the topic's end, which is a cheap request.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import OffsetSpec

from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError
from cdc.base.waits import KAFKA_REMEDY, WAITS
from cdc.kafka.brokers import BrokerAdmin

PAUSE_S: Final = 2.0
_PATIENCE_S: Final = 2.0
_END: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
_LOOK_AGAIN_S: Final = 0.2
_SILENT: Final = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
}
_LONGEST_CALL_S: Final = 1.0
"""How long to wait for the thread when the ``with`` block ends."""


class BrokerPulse:
    """Asks Kafka repeatedly while the ``with`` block lasts. While Kafka does not answer, ``WAITS`` says so.

    Args:
        options: librdkafka settings from the configuration.
        topic: the topic whose leader is asked, once it exists.
        stop: set when the thread fails; leaving the ``with`` block then raises the failure.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, stop: threading.Event) -> None:
        self._options = options
        self._topic = topic
        self._ended = threading.Event()
        self._worker = Worker(self._run, name="pulse", on_failure=stop.set)

    def __enter__(self) -> BrokerPulse:
        self._worker.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._worker.end(error, _LONGEST_CALL_S)

    def _run(self) -> None:
        if self._ended.wait(PAUSE_S):  # do not slow down the start of the process
            return
        admin = BrokerAdmin(self._options)
        while not self._ended.is_set():
            with WAITS.on("kafka", "Kafka to answer", KAFKA_REMEDY):
                while not self._answers(admin) and not self._ended.wait(_LOOK_AGAIN_S):
                    pass
            self._ended.wait(PAUSE_S)

    def _answers(self, admin: BrokerAdmin) -> bool:
        """Whether Kafka answers, be it with an error: errors are reported by whoever works with the topic."""
        try:
            found = admin.metadata(self._topic, timeout_s=_PATIENCE_S).topics.get(self._topic)
            if found is None or found.error is not None or not found.partitions:
                return True
            ends = admin.offsets([(self._topic, 0)], _END, timeout_s=_PATIENCE_S)
        except CdcError as error:
            return not error.retryable
        return not any(isinstance(each, KafkaError) and each.code() in _SILENT for each in ends.values())
