"""What a feed writes down for itself in the space ``feed``: where to go on, and how tables stand to their topics. Pure.

``topic/<topic>`` → ``FeedTopic``, ``cut`` → ``FeedCut``. Readers do not need them.
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
    """How the feed stands to one topic.

    Attributes:
        topic_id: Kafka's id of the topic that the stored offsets belong to.
        state: one of ``metrics.TABLE_STATES``; empty for a topic without a table.
        reason: why it is stopped or was begun anew.
        read_since: seconds since 1970, when the topic was last known to be read to its end; None while the cut says so.
        rows_applied: how many upserts and deletes were applied.
        unreadable: how many records of the generation that is being filled are not rows.
        filling_key: the key of that generation; the generation that is served may have another one.
    """

    topic_id: str = ""
    state: str = ""
    reason: str = ""
    read_since: float | None = None
    rows_applied: int = 0
    unreadable: int = 0
    filling_key: tuple[KeyColumn, ...] = ()


class FeedCut(msgspec.Struct, frozen=True, kw_only=True):
    """The position up to which a bridge's topics are applied, even if the source was never in that state."""

    lsn: int
    commit_ts: int
    system_identifier: str
    timeline: int
    database_oid: int
    caught_up_at: float


class FeedFacts(NamedTuple):
    """Everything in the space ``feed``."""

    topics: Mapping[str, FeedTopic]
    cut: FeedCut | None


_decode_topic: Final = msgspec.json.Decoder(FeedTopic)
_decode_cut: Final = msgspec.json.Decoder(FeedCut)


def topic_key(topic: str) -> Key:
    """The key of a topic's facts."""
    text = _TOPICS + topic.encode()
    return Key(text, text)


def cut_item(cut: FeedCut) -> Item:
    """The store's entry for the cut."""
    return Item(_CUT, encode(cut))


def read_feed(snapshot: StoreSnapshot) -> FeedFacts:
    """Reads everything that the feed wrote down."""
    topics: dict[str, FeedTopic] = {}
    cut: FeedCut | None = None
    for key, value in snapshot.scan(FEED, limit=_MANY):
        if key.order == _CUT.order:
            cut = _decode_cut.decode(value)
        else:
            topics[key.order.removeprefix(_TOPICS).decode()] = _decode_topic.decode(value)
    return FeedFacts(topics, cut)
