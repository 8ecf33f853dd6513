"""Keys and values of ``{name}.__progress`` that tell a topic again after a restart: which it was, and how far it went.

A topic's name outlives the topic: deleted and made anew, it is empty under the same name, and nobody would notice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from cdc.contract.parsing import parse_record

_PREFIX: Final = b'{"topic":'


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as the bridge saw it last.

    Attributes:
        topic_id: Kafka's own id, new with every topic of the same name.
        low: by partition, the first offset that can be read; compaction never moves it, deleting records does.
        ends: by partition, the high watermark.
    """

    topic_id: str
    low: tuple[int, ...]
    ends: tuple[int, ...]


def known_topic_key(topic: str) -> bytes:
    """The key under which a topic stands."""
    return orjson.dumps({"topic": topic})


def named_topic(key: bytes | None) -> str | None:
    """The topic that a key of the progress topic stands for; None for keys of another kind."""
    if key is None or not key.startswith(_PREFIX):
        return None
    return str(orjson.loads(key)["topic"])


def known_topic_value(topic: KnownTopic) -> bytes:
    """The record's value, one JSON object with the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(topic)})


def parse_known_topic(value: bytes) -> KnownTopic:
    """Read a known topic back.

    Raises:
        DecodeError: not such a record of version 1.
    """
    return parse_record("topic", "progress", value, _known_topic)


def _known_topic(fields: dict[str, Any]) -> KnownTopic:
    if type(fields["topic_id"]) is not str:
        raise TypeError("topic id")
    return KnownTopic(fields["topic_id"], _offsets(fields["low"]), _offsets(fields["ends"]))


def _offsets(values: Any) -> tuple[int, ...]:
    if not all(type(value) is int for value in values):
        raise TypeError(f"not offsets: {values!r}")
    return tuple(values)
