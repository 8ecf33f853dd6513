"""The keys that a topic holds rows for: what a TRUNCATE has to delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cdc.replay.bounded import partitions_of, read_to_end


def live_keys(options: Mapping[str, Any], topic: str) -> Iterator[bytes]:
    """Every key whose latest committed record is not a tombstone, up to the topic's end at the time of the call's use.

    Partition by partition, so that memory holds one partition's keys at most. A partition's end is looked up when its
    turn comes; the caller may meanwhile write to partitions that were already read.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        topic: a state topic.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
    """
    for partition in partitions_of(options, topic):
        keys: dict[bytes, None] = {}  # a set in order of first appearance: the same tombstones in each attempt
        for record in read_to_end(options, [partition]):
            if record.key is None:
                continue
            if record.value is None:
                keys.pop(record.key, None)
            else:
                keys[record.key] = None
        yield from keys
