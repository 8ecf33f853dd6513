"""Keys and values of the records in ``{name}.__progress`` that identify a topic after a restart: its id and its ends.

A topic's name is not enough: a topic that was deleted and recreated is empty under the same name, and nobody would
notice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from cdc.contract.parsing import as_attributes, named, parse_record


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as the bridge last saw it.

    Attributes:
        topic_id: Kafka's own id; a recreated topic has another one.
        low: by partition, the first offset that can be read; compaction never moves it, deleting records does.
        ends: by partition, the high watermark.
    """

    topic_id: str
    low: tuple[int, ...]
    ends: tuple[int, ...]


def known_topic_key(topic: str) -> bytes:
    """The key of a topic's record."""
    return orjson.dumps({"topic": topic})


def named_topic(key: bytes | None) -> str | None:
    """Returns the topic that a key of the progress topic names; None for keys of another kind."""
    return named("topic", key)


def known_topic_value(topic: KnownTopic) -> bytes:
    """The record's value: one JSON object, whose members have the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(topic)})


def parse_known_topic(value: bytes) -> KnownTopic:
    """Parse the value of a topic's record.

    Raises:
        DecodeError: not a topic record of version 1.
    """
    return parse_record("topic", "progress", value, as_attributes(KnownTopic))
