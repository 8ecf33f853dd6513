"""Holds a compacted topic in memory: every instance of a service reads all of it, and follows it.

It joins no consumer group, because a group would give each instance only a part of the keys. ``load`` reads to the ends
that the partitions had when it began, whatever lies there: records, transaction markers, aborted records, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import open_once, read_through
from cdc.state.entries import Change, Entries, Entry
from cdc.state.keys import Key, KeyFormat
from cdc.state.options import client_options
from cdc.state.topics import partitions_of_topic

_RECORDS_PER_POLL: Final = 5_000


class StateReader:
    """The current value of each key of a topic.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: a compacted topic.
        key_columns: as for ``StateProducer``; with them, you need not spell keys as bytes.

    Raises:
        ConfigError: an option or a column is invalid.
        TopicRefused: the topic does not exist, or we may not read it.
        TopicUnavailable: no broker answers.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, *, key_columns: Sequence[str] = ()) -> None:
        admin = BrokerAdmin(client_options(options))
        self._form = KeyFormat(key_columns)
        self._partitions = partitions_of_topic(admin, topic)
        self._reader = open_once(admin)
        self._reader.add(dict.fromkeys(self._partitions, 0))
        self._entries = Entries()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._entries.now)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries.now)

    def get(self, key: Key | bytes) -> Entry | None:
        """Returns the key's entry, or None. Bytes are taken for the key as it is in the topic.

        Raises:
            ValueRefused: the key is invalid for this topic.
        """
        return self._entries.now.get(key if isinstance(key, bytes) else self._form.encode(key))

    def load(self) -> list[Change]:
        """Reads everything that was committed before this call, perhaps more, and returns what changed.

        Raises:
            TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
            TopicRefused: the topic is gone.
        """
        ends = self._reader.high_watermarks(self._partitions)
        return self._entries.take(read_through(self._reader, ends))

    def poll(self, timeout_s: float) -> list[Change]:
        """Waits up to ``timeout_s`` for new records and returns what they changed. Raises the errors of ``load``."""
        return self._entries.take(self._reader.poll(_RECORDS_PER_POLL, timeout_s))

    def close(self) -> None:
        """Closes the connections."""
        self._reader.close()
