"""Whether Kafka answers, asked all the time: a consumer that reads nothing looks the same with brokers that are gone.

librdkafka takes a broker that stands still for one that has nothing new, for a minute or more. So a thread and a client
of their own ask the leader of the progress topic for its end, which costs nothing to speak of.
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

_PAUSE_S: Final = 2.0
_PATIENCE_S: Final = 2.0
_END: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_LOOK_AGAIN_S: Final = 0.2
_SILENT: Final = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
}
_LONGEST_CALL_S: Final = 1.0
"""For what is under way when the process ends."""


class BrokerPulse:
    """Asks while the ``with`` block lasts; a question that is not answered is a wait of this process.

    Args:
        options: librdkafka settings from the configuration.
        topic: whose leader is asked, once it exists.
        stop: set when the thread fails; leaving the ``with`` block then raises why.
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
        if self._ended.wait(_PAUSE_S):  # a process that starts has enough to do
            return
        admin = BrokerAdmin(self._options)
        while not self._ended.is_set():
            with WAITS.on("kafka", "Kafka to answer", KAFKA_REMEDY):
                while not self._answers(admin) and not self._ended.wait(_LOOK_AGAIN_S):
                    pass
            self._ended.wait(_PAUSE_S)

    def _answers(self, admin: BrokerAdmin) -> bool:
        """Whether it answers; what it answers is for those who work with it."""
        try:
            found = admin.metadata(self._topic, timeout_s=_PATIENCE_S).topics.get(self._topic)
            if found is None or found.error is not None or not found.partitions:
                return True
            ends = admin.offsets([(self._topic, 0)], _END, timeout_s=_PATIENCE_S)
        except CdcError as error:
            return not error.retryable
        return not any(isinstance(each, KafkaError) and each.code() in _SILENT for each in ends.values())
