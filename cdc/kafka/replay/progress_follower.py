"""Follows the progress topic for callers that look at it repeatedly: each look reads only what is new.

A bridge at work writes a record with every Kafka transaction. Reading the topic from its beginning every two seconds
would read more and more records, until the cleaner removes old ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from cdc.base.errors import CdcError, DecodeError
from cdc.contract.progress import parse_progress
from cdc.contract.record import Progress
from cdc.kafka.replay.backfills import Newest, Published, keep, published
from cdc.kafka.replay.bounded import read_through
from cdc.kafka.replay.client import missing_topic
from cdc.kafka.replay.reader import TopicReader

_LATELY: Final = 600
"""How many progress records to remember. A bridge at work writes about ten a second: the last minute, in 200 KB."""


class ProgressFollower:
    """Reads the progress topic, and remembers what it read. One thread calls all methods.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        topic: the progress topic.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._options = options
        self._topic = topic
        self._reader: TopicReader | None = None
        self._topic_id = ""
        self._newest: Newest = {}
        self._lately: deque[bytes] = deque(maxlen=_LATELY)

    def look(self, stream_key: bytes) -> Published:
        """Returns everything that is committed in the progress topic now.

        Args:
            stream_key: as ``contract.progress.stream_key`` makes it.

        Raises:
            TopicRefused: there is no such topic, or we may not read it.
            TopicUnavailable: no broker answers.
            DecodeError: a record does not follow this contract.
        """
        try:
            reader = self._opened()
            # No topic is ``marked`` here: requests are written outside Kafka transactions, so the last offset may be a
            # record.
            for record in read_through(reader, reader.fence(())):
                keep(self._newest, record)
                if record.key == stream_key and record.value is not None:
                    self._lately.append(record.value)
        except CdcError:
            self.close()
            raise
        return published(self._newest, stream_key)

    def lately(self) -> list[Progress]:
        """Returns the last progresses of the stream, oldest first: at most 600, fewer if the cleaner removed some."""
        found = []
        for value in self._lately:
            with suppress(DecodeError):  # a record from another version; ``look`` raises if it is the newest
                found.append(parse_progress(value))
        return found

    def close(self) -> None:
        """Close the connections; the next look starts from the beginning of the topic."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _opened(self) -> TopicReader:
        if self._reader is None:
            self._reader = TopicReader(self._options)
            self._topic_id = ""
        topic_id = self._reader.ids([self._topic]).get(self._topic)
        if topic_id is None:
            raise missing_topic(self._topic)
        if topic_id != self._topic_id:  # never seen, or recreated since
            partitions = self._reader.partitions(self._topic)
            if not partitions:  # another broker answered, which does not know the topic yet
                raise missing_topic(self._topic)
            self._reader.remove(list(self._reader.positions()))
            self._reader.add(dict.fromkeys(partitions, 0))
            self._topic_id, self._newest = topic_id, {}
            self._lately.clear()
        return self._reader
