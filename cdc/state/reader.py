"""A compacted topic, held in memory: every instance of a service reads all of it, and follows it.

No consumer group is joined: a group would give each instance a part of the keys. ``load`` ends at the ends that the
partitions had when it began, whatever lies there: records, transaction markers, aborted records, nothing at all.
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
    """What each key of a topic holds.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: compacted.
        key_columns: of the keys, as for ``StateProducer``; so that they need not be spelled as bytes.

    Raises:
        ConfigError: an option or a column is wrong.
        TopicRefused: there is no such topic, or we may not read it.
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
        """What the key holds, None for nothing. Bytes are the key as it is in the topic.

        Raises:
            ValueRefused: no key of this topic.
        """
        return self._entries.now.get(key if isinstance(key, bytes) else self._form.encode(key))

    def load(self) -> list[Change]:
        """Read on until everything is in that was committed when this was called, perhaps more; what that changed.

        Raises:
            TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
            TopicRefused: the topic is gone.
        """
        ends = self._reader.high_watermarks(self._partitions)
        return self._entries.take(read_through(self._reader, ends))

    def poll(self, timeout_s: float) -> list[Change]:
        """Take in what is new; waits for something up to this long. Errors as for ``load``."""
        return self._entries.take(self._reader.poll(_RECORDS_PER_POLL, timeout_s))

    def close(self) -> None:
        """Let the brokers go."""
        self._reader.close()
