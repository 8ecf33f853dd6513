"""How far a stream is published: the newest committed record of its key in ``{name}.__progress``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.encode.progress import parse_progress
from cdc.record import Progress
from cdc.replay.bounded import partitions_of, read_to_end


def read_progress(options: Mapping[str, Any], topic: str, key: bytes) -> Progress | None:
    """The stored progress, or None when there is none yet.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        topic: the progress topic.
        key: of the stream, as ``encode.progress.stream_key`` makes it.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
        DecodeError: the record is not of this contract.
    """
    newest: bytes | None = None
    for record in read_to_end(options, partitions_of(options, topic)):
        if record.key == key:
            newest = record.value
    return None if newest is None else parse_progress(newest)
