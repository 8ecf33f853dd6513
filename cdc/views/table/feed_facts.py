"""What a feed writes down for itself, in the space ``feed``: where it goes on, and how its tables stand to it. Pure.

``topic/<topic>`` → ``FeedTopic``, ``cut`` → ``FeedCut``. Readers do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from cdc.views.store.port import Item, Key, StoreSnapshot
from cdc.views.table.facts import KeyColumn, encode

FEED: Final = "feed"
_TOPICS: Final = b"topic/"
_CUT: Final = Key(b"cut", b"cut")
_MANY: Final = 100_000


class FeedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is read.

    Attributes:
        topic_id: Kafka's own, of the topic that offsets are stored of.
        state: one of ``metrics.TABLE_STATES``; empty for a topic without a table.
        reason: why it is stopped or begun anew.
        read_since: seconds since 1970; up to when its end is known to have been read, while no cut says so.
        rows_applied: upserts and deletes.
        unreadable: of the generation that is being filled.
        filling_key: its key, which may be another one than that of the generation that is served.
    """

    topic_id: str = ""
    state: str = ""
    reason: str = ""
    read_since: float | None = None
    rows_applied: int = 0
    unreadable: int = 0
    filling_key: tuple[KeyColumn, ...] = ()


class FeedCut(msgspec.Struct, frozen=True, kw_only=True):
    """Where the topics of a bridge are applied to, whether or not the source was ever like that."""

    lsn: int
    commit_ts: int
    system_identifier: str
    timeline: int
    database_oid: int
    caught_up_at: float


class FeedFacts(NamedTuple):
    """All of it."""

    topics: Mapping[str, FeedTopic]
    cut: FeedCut | None


_decode_topic: Final = msgspec.json.Decoder(FeedTopic)
_decode_cut: Final = msgspec.json.Decoder(FeedCut)


def topic_key(topic: str) -> Key:
    """Where a topic's facts stand."""
    text = _TOPICS + topic.encode()
    return Key(text, text)


def cut_item(cut: FeedCut) -> Item:
    """The entry of the cut."""
    return Item(_CUT, encode(cut))


def read_feed(snapshot: StoreSnapshot) -> FeedFacts:
    """All of it."""
    topics: dict[str, FeedTopic] = {}
    cut: FeedCut | None = None
    for key, value in snapshot.scan(FEED, limit=_MANY):
        if key.order == _CUT.order:
            cut = _decode_cut.decode(value)
        else:
            topics[key.order.removeprefix(_TOPICS).decode()] = _decode_topic.decode(value)
    return FeedFacts(topics, cut)
