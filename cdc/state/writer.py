"""The only writer of a topic: it fences its predecessor, reads the topic back, and then knows every key's version.

Theory of operation. A version check needs somebody who knows the current version at the moment of the write. Kafka
does not compare versions, but it lets only one producer with a transactional id write. That producer knows every
version: nobody else can have written since it read the topic to its end, and it keeps track of its own writes. A second
instance takes the id over. The first one learns of it at its next commit, which raises ``FencedError``; nothing of that
transaction becomes readable.

The order at the start matters: fence first, then read. In the other order, the predecessor could still write a record
after the topic was read.
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
"""How many records have their partition checked. A check takes microseconds, and a wrong topic is wrong everywhere."""


class FencedWriter:
    """Writes one compacted topic, and others in the same Kafka transactions.

    Args:
        options: librdkafka settings.
        topic: the compacted topic.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not read or write the topic, or keys lie in partitions where they do not belong.
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
        """Returns the key's entry, including what an open transaction wrote. Such an entry has no version yet."""
        if key not in self._pending:
            return self.entries.now.get(key)
        pending = self._pending[key]
        return None if pending is None else Entry(pending[0], ABSENT, pending[1])

    def expect(self, key: bytes, version: int | None) -> None:
        """Checks that the key has this version; None accepts any.

        Raises:
            VersionConflict: the key has another version, or this transaction has written it already.
        """
        if version is None:
            return
        found = self.entries.version(key)
        if key in self._pending or found != version:
            held = "has been written in this transaction" if key in self._pending else _spelled(found)
            raise VersionConflict(
                f"key {key.decode(errors='replace')} of topic {self._topic!r} {held}, not {_spelled(version)}",
                remedy="get the key again, and decide again with its value now",
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes all writes of the block readable together; none of them if an exception leaves the block.

        A transaction inside another one is part of the outer one.

        Raises:
            FencedError: a second instance took over.
            TopicUnavailable: the outcome is unknown. Close the writer and open it again to read back what was written.
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
        """Upserts a key, or deletes it with None. Only inside a transaction."""
        self._producer.produce(self._topic, key, value, header)
        self._pending[key] = None if value is None else (value, header)

    def write_beside(self, topic: str, key: bytes, value: bytes) -> None:
        """Writes a record to another topic. Only inside a transaction."""
        self._producer.produce(topic, key, value)

    def flush(self) -> Mapping[tuple[str, bytes], int]:
        """Returns the offset of the transaction's newest record, by topic and key. Only inside a transaction."""
        return self._producer.flush()

    def close(self) -> None:
        """Aborts an open transaction, and closes the connections."""
        if not self._is_closed:
            self._is_closed = True
            self._failure = TopicUnavailable(f"the writer of topic {self._topic!r} is closed", remedy="open it again")
            self._producer.close()

    def _keep(self, offsets: Mapping[tuple[str, bytes], int]) -> None:
        # Stays until the entries are updated: Ctrl-C may come between the commit and that, and they would be wrong.
        self._failure = TopicUnavailable(
            f"a commit to topic {self._topic!r} was interrupted: its outcome is unknown",
            remedy="close the writer and open it again",
        )
        self._producer.commit()
        for key, pending in self._pending.items():
            if pending is None:
                self.entries.now.pop(key, None)
            else:
                self.entries.now[key] = Entry(pending[0], offsets[self._topic, key], pending[1])
        self._failure = None

    def _give_up(self, error: BaseException) -> None:
        """Aborts after an error. If the block itself raised it, the writer can go on. If Kafka raised it, the writer
        cannot, because what it knows of the topic may be wrong by now."""
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
    """Yields the records, and checks the partition of the first ones. A new value replaces an old one in the same
    partition only, so state in a wrong partition would stay for ever."""
    for number, record in enumerate(records):
        if number < _SAMPLE and record.key is not None and partition_of(record.key, count) != record.partition:
            raise TopicRefused(
                f"key {record.key.decode(errors='replace')} of topic {record.topic!r} lies in partition "
                f"{record.partition}, and belongs in {partition_of(record.key, count)} of {count}",
                remedy="copy its state to a new topic: partitions were added, or another program writes with another "
                "partitioner (librdkafka's default is not murmur2_random, which Java clients use)",
            )
        yield record


def _spelled(version: int) -> str:
    return "holds nothing" if version == ABSENT else f"has version {version}"
