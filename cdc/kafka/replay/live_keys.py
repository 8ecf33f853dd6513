"""Finds the keys for which a topic holds rows: those that a TRUNCATE has to delete, and those a sweep looks at.

Theory of operation. Only the end of a partition tells which record of a key counts, so keys must be kept while the
partition is read, and it may hold more keys than fit in memory. So it is read in several passes, each of which keeps
the keys in one range of hashes. The first pass takes all hashes. Whenever a pass holds too much, it gives up the upper
half of its range; the next pass continues from there with a range as wide as this one ended with. So the number of
passes depends on the number of live keys, not of records, and a small topic is read once.

Between two passes, the cleaner may remove superseded records below the end, but none that counts. The end stays where
it was, so the caller may meanwhile write after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Final
from zlib import crc32

from cdc.contract.ports import Partition, StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import open_once, partitions_of, read_until
from cdc.kafka.replay.reader import TopicReader

MAX_KEY_BYTES: Final = 32 * 1024 * 1024
"""Approximate memory for the keys of one pass: a quarter of a million short ones. A partition with a million live keys
is then read four times, and the bridge keeps to its memory limit."""

_ENTRY_BYTES: Final = 110
"""What CPython needs for a key in a dictionary, in addition to the key's bytes."""

_HASHES: Final = 1 << 32


def live_keys(admin: BrokerAdmin, topic: str, *, before_poll: Callable[[], object] = lambda: None) -> Iterator[bytes]:
    """Yield every key whose latest committed record is not a tombstone.

    The topic is read up to the end that it has when the first key is asked for.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topic: a state topic.
        before_poll: called several times a second while the topic is read.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
    """
    partitions = partitions_of(admin, topic)
    with closing(open_once(admin)) as reader:
        for partition, end in reader.high_watermarks(partitions).items():
            yield from _of_partition(reader, partition, end, end, before_poll)


def stale_keys(
    admin: BrokerAdmin,
    partition: Partition,
    below: int,
    end: int,
    *,
    before_poll: Callable[[], object] = lambda: None,
) -> Iterator[bytes]:
    """Yield every key whose latest committed record before ``end`` is a row and lies before ``below``.

    Records at or past ``end`` do not count: a key that is yielded may have a newer record there.

    Args:
        admin: asks the brokers; the reader takes its settings.
        partition: topic and number.
        below: an offset at or before ``end``; records from there on count as fresh.
        end: a high watermark; Kafka transactions with records before it must end, or the call fails after two
            minutes.
        before_poll: called several times a second while the partition is read.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
    """
    with closing(open_once(admin)) as reader:
        yield from _of_partition(reader, partition, below, end, before_poll)


def unwritten_keys(
    admin: BrokerAdmin,
    partition: Partition,
    below: int,
    end: int,
    keys: Iterable[bytes],
    *,
    before_poll: Callable[[], object] = lambda: None,
) -> list[bytes]:
    """Returns those of the keys that have no committed record, not even a tombstone, from ``below`` up to ``end``.

    Args:
        keys: keys of the partition.
        admin, partition, below, end, before_poll: as for ``stale_keys``, which raises the same errors.
    """
    left = dict.fromkeys(keys)
    if left and below < end:
        with closing(open_once(admin)) as reader:
            reader.add({partition: below})
            for record in read_until(reader, {partition: end}, before_poll):
                left.pop(record.key or b"", None)
    return list(left)


def _of_partition(
    reader: TopicReader, partition: Partition, below: int, end: int, before_poll: Callable[[], object]
) -> Iterator[bytes]:
    def read() -> Iterator[StoredRecord]:
        reader.add({partition: 0})
        yield from read_until(reader, {partition: end}, before_poll)
        reader.remove([partition])

    return keys_below(read, below, MAX_KEY_BYTES) if below and end else iter(())


def keys_below(read: Callable[[], Iterable[StoredRecord]], below: int, max_key_bytes: int) -> Iterator[bytes]:
    """Yield the keys whose latest record is a row at an offset before ``below``, in as many passes as memory requires.

    Args:
        read: returns the records of one partition in order; called once per pass.
        below: records from this offset on only remove keys.
        max_key_bytes: approximate memory for the keys of one pass.
    """
    low, width = 0, _HASHES
    while low < _HASHES:
        keys, high = _one_pass(read(), below, low, min(low + width, _HASHES), max_key_bytes)
        yield from keys
        low, width = high, high - low


def _one_pass(
    records: Iterable[StoredRecord], below: int, low: int, high: int, max_key_bytes: int
) -> tuple[Iterable[bytes], int]:
    """Returns the keys with hashes from ``low`` on, and the hash at which the pass had to stop."""
    keys: dict[bytes, None] = {}  # an ordered set, so that the answer is the same each time
    held = 0
    for _, _, offset, key, value, _ in records:
        if key is None or not low <= crc32(key) < high:
            continue
        if value is not None and offset < below:
            if key not in keys:
                keys[key] = None
                held += len(key) + _ENTRY_BYTES
                # A pass keeps at least one key, however large, or it would make no progress
                while held > max_key_bytes and len(keys) > 1 and high - low > 1:
                    high = (low + high) // 2
                    keys = {each: None for each in keys if crc32(each) < high}
                    held = sum(map(len, keys)) + len(keys) * _ENTRY_BYTES
        elif key in keys:
            del keys[key]
            held -= len(key) + _ENTRY_BYTES
    return keys, high
