"""Reads from the progress topic how far the bridge is (the fence of a comparison), and whether topics are whole."""

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
"""How long Kafka may send nothing before we give up reading the topic to its end."""


class BridgeProgress:
    """Follows ``{name}.__progress``. Call ``close`` at the end.

    Raises:
        TopicUnreadable: from every method, if Kafka does not answer or has no progress of this stream.
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
        """Closes the connection."""
        self._consumer.close()

    def catch_up(self) -> None:
        """Reads everything that is committed now."""
        end = self._brokers.extent(self._topic).ends[0]
        deadline = time.monotonic() + _QUIET_S
        while self._position() < end:
            if self._poll(0.1):
                deadline = time.monotonic() + _QUIET_S
            elif time.monotonic() > deadline:
                raise TopicUnreadable(f"topic {self._topic} cannot be read to its end", remedy="check the brokers")

    @property
    def lsn(self) -> LSN:
        """The published position: everything that committed before it is in the topics."""
        return LSN.parse(self._of_stream()["lsn"])

    @property
    def unseen(self) -> tuple[int, ...]:
        """The published transactions that a snapshot might not see yet."""
        return tuple(map(int, self._of_stream().get("unseen", ())))

    @property
    def commit_ts_us(self) -> int:
        """The commit time of the newest published transaction, µs since 1970; 0 if unknown."""
        return int(self._of_stream()["commit_ts"])

    @property
    def system_identifier(self) -> str:
        """The system identifier of the server that the stream comes from."""
        return str(self._of_stream()["source"]["system_identifier"])

    @property
    def may_be_late(self) -> bool:
        """True if topics may hold rows after newer ones, sent late by a suspended bridge (``delivery: idempotent``)."""
        return self._of_stream().get("lead") is not None

    def is_whole(self, table: str) -> bool:
        """Tells whether the topic of ``namespace.table`` holds every row; it does unless a backfill says otherwise."""
        backfill = self._values.get(_key({"backfill": table}))
        return backfill is None or bool(backfill["whole"])

    def wait_for(self, lsn: LSN, timeout_s: float) -> float:
        """Waits until everything that committed before ``lsn`` is published.

        Returns:
            How long the wait took, in seconds.

        Raises:
            NotCaughtUp: the bridge did not get there within ``timeout_s``.
        """
        started = time.monotonic()
        while self.lsn < lsn:
            waited = time.monotonic() - started
            if waited > timeout_s:
                raise NotCaughtUp(
                    f"the bridge has published up to {self.lsn}, which is still {lsn - self.lsn} bytes of WAL short of"
                    f" {lsn} after {waited:.0f} s",
                    remedy="check with cdc status how far behind it is, or allow more time with --fence-timeout",
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
            raise TopicUnreadable(f"topic {self._topic}: {error}", remedy="check the brokers") from error
        for message in messages:
            key, value = message.key(), message.value()
            if message.error() is not None or key is None:
                continue
            if value is None:
                self._values.pop(key.decode(), None)
            # The topic holds more, such as requests to the bridge and the topics that it knows.
            elif key.startswith((b'{"stream":', b'{"backfill":')):
                self._values[key.decode()] = json.loads(value)
        return len(messages)

    def _position(self) -> int:
        offset: int = self._consumer.position([TopicPartition(self._topic, 0)])[0].offset
        return max(offset, 0) if offset >= 0 else self._brokers.extent(self._topic).starts[0]


def _key(fields: dict[str, str]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
