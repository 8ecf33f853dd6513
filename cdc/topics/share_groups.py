"""Finds share groups that read a topic (KIP-932). Each member gets only some of the records, in no particular order.

The client library lists consumer groups only. Brokers before Kafka 4.1 have no share groups.
"""

from __future__ import annotations

import struct
from typing import Final

from cdc.kafka.wire import AnswerReader, BrokerWire, compact_text

_API_VERSIONS: Final = 18
_LIST_GROUPS: Final = 16
_SHARE_GROUP_DESCRIBE: Final = 77


def share_groups(broker: BrokerWire) -> dict[str, frozenset[str]]:
    """Returns the topics of each share group that this broker coordinates, as far as we may see them.

    Raises:
        TopicUnavailable: the broker went away.
    """
    if not _knows_share_groups(broker):
        return {}
    answer = AnswerReader(broker.ask(_LIST_GROUPS, 5, b"\1\2" + compact_text("share") + b"\0", flexible=True))
    answer.take(">ih")
    found = {}
    for _ in range(answer.compact_count()):
        group = answer.compact_text()
        for _ in ("protocol", "state", "type"):
            answer.compact_text()
        answer.skip_tags()
        found[group] = _topics(broker, group)
    return found


def _knows_share_groups(broker: BrokerWire) -> bool:
    answer = AnswerReader(broker.ask(_API_VERSIONS, 0, b""))
    _, count = answer.take(">hi")
    versions = [answer.take(">hhh") for _ in range(count)]
    return any(api == _SHARE_GROUP_DESCRIBE and most >= 1 for api, _, most in versions)


def _topics(broker: BrokerWire, group: str) -> frozenset[str]:
    answer = AnswerReader(
        broker.ask(
            _SHARE_GROUP_DESCRIBE, 1, b"\2" + compact_text(group) + struct.pack(">?", False) + b"\0", flexible=True
        )
    )
    answer.take(">i")
    topics: set[str] = set()
    for _ in range(answer.compact_count()):
        answer.take(">h")
        for _ in ("error", "group", "state"):
            answer.compact_text()
        answer.take(">ii")
        answer.compact_text()
        for _ in range(answer.compact_count()):
            topics |= _member(answer)
        answer.take(">i")
        answer.skip_tags()
    return frozenset(topics)


def _member(answer: AnswerReader) -> set[str]:
    for _ in ("member", "rack"):
        answer.compact_text()
    answer.take(">i")
    for _ in ("client", "host"):
        answer.compact_text()
    topics = {answer.compact_text() for _ in range(answer.compact_count())}
    for _ in range(answer.compact_count()):  # the assignment's partitions
        answer.skip(16)
        answer.compact_text()
        answer.skip(4 * answer.compact_count())
        answer.skip_tags()
    answer.skip_tags()
    answer.skip_tags()
    return topics
