"""How far the bridge is, read from its progress topic: the fence of a comparison, and whether a table can be judged."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import KafkaSettings, Stream
from cdc.contract.naming import progress_topic
from cdc.spark.errors import NotCaughtUp, TopicUnreadable
from cdc.spark.kafka_options import client_options
from cdc.spark.offsets import Brokers, waiting

_QUIET_S: Final = 30.0


class BridgeProgress:
    """Follows ``{name}.__progress``. Close it at the end.

    Raises:
        TopicUnreadable: from every method, when Kafka does not answer or holds no progress of this stream.
    """

    def __init__(self, kafka: KafkaSettings, stream: Stream, brokers: Brokers) -> None:
        self._topic = progress_topic(stream.name)
        self._stream = {"stream": stream.slot}
        self._brokers = brokers
        self._values: dict[str, dict[str, Any]] = {}
        self._consumer = Consumer(
            {
                **client_options(kafka),
                "group.id": "cdc-spark-progress",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(self._topic, 0, brokers.extent(self._topic).starts[0])])

    def close(self) -> None:
        """Free the connection."""
        self._consumer.close()

    def catch_up(self) -> None:
        """Read all that is committed now."""
        end = self._brokers.extent(self._topic).ends[0]
        deadline = time.monotonic() + _QUIET_S
        while self._position() < end:
            if self._poll(0.1):
                deadline = time.monotonic() + _QUIET_S
            elif time.monotonic() > deadline:
                raise TopicUnreadable(
                    f"topic {self._topic} does not come to its end", remedy="see whether the brokers are well"
                )

    @property
    def lsn(self) -> LSN:
        """Everything that committed before is published."""
        return LSN.parse(self._of_stream()["lsn"])

    @property
    def unseen(self) -> tuple[int, ...]:
        """Published transactions that a snapshot might not see yet."""
        return tuple(map(int, self._of_stream().get("unseen", ())))

    @property
    def commit_ts_us(self) -> int:
        """Commit time of the newest published transaction, µs since 1970; 0 when unknown."""
        return int(self._of_stream()["commit_ts"])

    @property
    def system_identifier(self) -> str:
        """Of the server that the stream came from."""
        return str(self._of_stream()["source"]["system_identifier"])

    @property
    def may_be_late(self) -> bool:
        """Whether topics may hold rows behind newer ones: a bridge with ``delivery: idempotent`` stood still."""
        return self._of_stream().get("lead") is not None

    def is_whole(self, table: str) -> bool:
        """Whether the topic of ``namespace.table`` holds every row: no backfill says otherwise."""
        backfill = self._values.get(_key({"backfill": table}))
        return backfill is None or bool(backfill["whole"])

    def wait_for(self, lsn: LSN, timeout_s: float) -> float:
        """Until everything that committed before ``lsn`` is published.

        Returns:
            How long that took, in seconds.

        Raises:
            NotCaughtUp: it is not, after ``timeout_s``.
        """
        started = time.monotonic()
        while self.lsn < lsn:
            waited = time.monotonic() - started
            if waited > timeout_s:
                raise NotCaughtUp(
                    f"the bridge has published everything before {self.lsn}, {lsn - self.lsn} bytes of WAL short of"
                    f" {lsn} after {waited:.0f} s",
                    remedy="see whether it runs and how far behind it is (cdc status), or allow more: --fence-timeout",
                )
            self._poll(0.1)
        return time.monotonic() - started

    def _of_stream(self) -> dict[str, Any]:
        found = self._values.get(_key(self._stream))
        if found is None:
            raise TopicUnreadable(
                f"topic {self._topic} has no progress of slot {self._stream['stream']}",
                remedy="start the bridge (cdc run) and let it publish first",
            )
        return found

    def _poll(self, timeout_s: float) -> int:
        try:
            messages = waiting(self._consumer, timeout_s)
        except KafkaException as error:
            raise TopicUnreadable(f"topic {self._topic}: {error}", remedy="see whether the brokers are well") from error
        for message in messages:
            key, value = message.key(), message.value()
            if message.error() is not None or key is None:
                continue
            if value is None:
                self._values.pop(key.decode(), None)
            elif key.startswith((b'{"stream":', b'{"backfill":')):
                self._values[key.decode()] = json.loads(value)
        return len(messages)

    def _position(self) -> int:
        offset: int = self._consumer.position([TopicPartition(self._topic, 0)])[0].offset
        return max(offset, 0) if offset >= 0 else self._brokers.extent(self._topic).starts[0]


def _key(fields: dict[str, str]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
