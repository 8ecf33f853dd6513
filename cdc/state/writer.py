"""The only writer of a topic: it fences whoever wrote before, reads the topic back, and then knows every key's version.

Theory of operation. A version check needs somebody who knows the current version at the moment of the write. Kafka
does not compare; but it lets only one producer of a transactional id write. So the one that holds the id knows: nobody
else can have written since it read the topic to its end, and what it wrote itself it has counted. A second instance
takes the id over. The first learns it at its next commit, as a ``FencedError``, and nothing of it becomes readable.

The order at the start matters: fence first, then read. Otherwise the former writer could still add what was not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cdc.base.config import TopicsConfig
from cdc.base.errors import CdcError, FencedError, TopicRefused, TopicUnavailable, VersionConflict
from cdc.contract.partition import partition_of
from cdc.contract.ports import StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.application import ApplicationProducer
from cdc.kafka.replay.bounded import partitions_of, read_to_end
from cdc.state.entries import ABSENT, Entries, Entry

_MAX_MESSAGE_BYTES: Final = TopicsConfig().max_message_bytes
_SAMPLE: Final = 10_000
"""Records whose place is checked: it takes some microseconds each, and a topic with the fault has it everywhere."""


class FencedWriter:
    """Writes one compacted topic, and others in the same Kafka transactions.

    Args:
        options: librdkafka settings.
        topic: that is compacted.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not write, or not read, the topic; or keys lie in partitions where they do not belong.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._is_inside = self._is_closed = False
        self._pending: dict[bytes, tuple[bytes, bytes] | None] = {}
        self._failure: CdcError | None = None
        self._producer = ApplicationProducer(
            options, transactional_id=f"cdc-state-{topic}", max_message_bytes=_MAX_MESSAGE_BYTES
        )
        self.entries = Entries()
        try:
            self._producer.start()
            admin = BrokerAdmin(options)
            partitions = partitions_of(admin, topic)
            self.entries.take(_in_their_place(read_to_end(admin, partitions), len(partitions)))
        except BaseException:
            self._producer.close()
            raise

    def get(self, key: bytes) -> Entry | None:
        """What the key holds; inside of a transaction, with what that one wrote. Its version counts from the commit."""
        if key not in self._pending:
            return self.entries.now.get(key)
        pending = self._pending[key]
        return None if pending is None else Entry(pending[0], ABSENT, pending[1])

    def expect(self, key: bytes, version: int | None) -> None:
        """Compare with the key's version; None takes any.

        Raises:
            VersionConflict: it has another, or this transaction wrote the key already.
        """
        if version is None:
            return
        found = self.entries.version(key)
        if key in self._pending or found != version:
            held = "has been written in this transaction" if key in self._pending else _spelled(found)
            raise VersionConflict(
                f"key {key.decode(errors='replace')} of topic {self._topic!r} {held}, not {_spelled(version)}",
                remedy="get the key again, and decide anew with what it holds now",
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside become readable together; none of them does if the block is left by an exception.

        Inside of another one it is part of that.

        Raises:
            FencedError: a second instance took over.
            TopicUnavailable: the outcome is unknown. Close, and open again: that reads what became of it.
        """
        if self._failure is not None:
            raise self._failure
        if self._is_inside:
            yield
            return
        self._is_inside = True
        try:
            yield
            self._keep(dict(self._producer.flush()))
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self._is_inside = False
            self._pending.clear()

    def write(self, key: bytes, value: bytes | None, header: bytes = b"") -> None:
        """Inside of a transaction: upsert, or delete with None."""
        self._producer.produce(self._topic, key, value, header)
        self._pending[key] = None if value is None else (value, header)

    def write_beside(self, topic: str, key: bytes, value: bytes) -> None:
        """Inside of a transaction: a record of another topic."""
        self._producer.produce(topic, key, value)

    def flush(self) -> Mapping[tuple[str, bytes], int]:
        """Inside of a transaction: by topic and key, at which offset the newest record of the transaction lies."""
        return self._producer.flush()

    def close(self) -> None:
        """Abort what is open, and let the brokers go."""
        if not self._is_closed:
            self._is_closed = True
            self._failure = TopicUnavailable(f"the writer of topic {self._topic!r} is closed", remedy="open it again")
            self._producer.close()

    def _keep(self, offsets: Mapping[tuple[str, bytes], int]) -> None:
        # Until all of it is known here: Ctrl-C may come between the commit and what follows from it.
        self._failure = TopicUnavailable(
            f"a commit to topic {self._topic!r} was interrupted: its outcome is unknown", remedy="close, and open again"
        )
        self._producer.commit()
        for key, pending in self._pending.items():
            if pending is None:
                self.entries.now.pop(key, None)
            else:
                self.entries.now[key] = Entry(pending[0], offsets[self._topic, key], pending[1])
        self._failure = None

    def _give_up(self, error: BaseException) -> None:
        """The block's own error leaves a writer that can go on. Kafka's does not: what it knows may be wrong by now."""
        if isinstance(error, FencedError | TopicUnavailable):
            self._failure = error
            return
        if isinstance(error, CdcError):
            self._failure = None
        try:
            self._producer.abort()
        except CdcError as failure:
            self._failure = failure


def _in_their_place(records: Iterable[StoredRecord], count: int) -> Iterator[StoredRecord]:
    """The records, the first of them checked: elsewhere, a new value would not replace the old one."""
    for number, record in enumerate(records):
        if number < _SAMPLE and record.key is not None and partition_of(record.key, count) != record.partition:
            raise TopicRefused(
                f"key {record.key.decode(errors='replace')} of topic {record.topic!r} lies in partition "
                f"{record.partition}, and belongs into {partition_of(record.key, count)} of {count}",
                remedy="the topic was given more partitions, or another program writes it with another partitioner "
                "(librdkafka's default is not murmur2_random, which Java clients use): copy its state to a new topic",
            )
        yield record


def _spelled(version: int) -> str:
    return "holds nothing" if version == ABSENT else f"has version {version}"
