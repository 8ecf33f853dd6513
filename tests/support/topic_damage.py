"""What no bridge writes: records that somebody else puts into a state topic; and what a topic holds, seen strictly."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer

from cdc.base.lsn import LSN
from cdc.contract.header import HeaderStamp
from cdc.contract.partition import partition_of
from cdc.contract.ports import StoredRecord
from cdc.lab.proof.comparison import describe, difference, pinned, table_rows, topic_rows
from cdc.lab.proof.topic_side import LiveRow
from tests.support.deployment import Deployment

FOREIGN_HEADER = HeaderStamp(LSN(1), 1, 1).header("u", 1, "0" * 16)
"""Of records that somebody forged; no position of a real record is so low."""


class Damage:
    """A plain producer that writes into a deployment's state topics, and remembers where.

    Attributes:
        places: topic, partition and offset of each record.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._producer = Producer({"bootstrap.servers": deployment.bootstrap, "partitioner": "murmur2_random"})
        self.places: set[tuple[str, int, int]] = set()

    def write(
        self, table: str, key: bytes, value: bytes | None, partition: int = -1, header: bytes = FOREIGN_HEADER
    ) -> None:
        """Put a record into the topic; call ``done`` when all are."""
        self._producer.produce(
            self._deployment.topic(table), value, key, partition, self._delivered, headers={"cdc": header}
        )

    def done(self) -> None:
        """See all of them arrive."""
        assert self._producer.flush(30) == 0

    def others(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """The records that are not of this producer."""
        return [each for each in records if (each.topic, each.partition, each.offset) not in self.places]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self.places.add((topic, partition, offset))


def live_rows(records: Iterable[StoredRecord], partitions: int) -> dict[bytes, LiveRow]:
    """A topic's rows by key; each lives in one partition, its own."""
    newest = {(each.partition, each.key or b""): each for each in records}
    rows: dict[bytes, LiveRow] = {}
    for (partition, key), record in newest.items():
        if record.value is not None:
            assert partition == partition_of(key, partitions), f"{key!r} lives in partition {partition}"
            rows[key] = LiveRow(record.value)
    return rows


def assert_topic_is_table(deployment: Deployment, *tables: str) -> None:
    """See that the tables, at rest, and their topics hold the same rows."""
    deployment.wait_published()
    with pinned(deployment.source.dsn) as source:
        for table in tables:
            shape = describe(source, table)
            live = live_rows(deployment.records(table), deployment.settings["topics"]["partitions"])
            found = difference("topic", table_rows(source, shape), topic_rows(live, shape), shape)
            assert found is None, f"{table}: {found}\n{deployment.bridge.tail()}"
