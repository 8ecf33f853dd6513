"""Lesson: the life of a tombstone, a reader that misses it, and how a view recovers from that."""

from __future__ import annotations

import threading
import time
from contextlib import closing

from msgspec.structs import replace

from cdc.base.config import OtherTopic
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.learn.classroom import AT_ONCE, Classroom, Topic, fold
from cdc.topics.census import Tombstones
from cdc.views.feed.topics import TopicSession
from cdc.views.store.memory import MemoryStore
from cdc.views.store.port import Item
from cdc.views.table.answers import Evidence
from cdc.views.table.facts import encode
from cdc.views.table.feed_facts import FEED, read_feed, topic_key
from cdc.views.table.table_view import TableView
from cdc.views.table.topic_writer import TopicWriter

_RETENTION_MS = 3_000  # long enough to show all four states of the tombstone, short enough to wait for
_AWAY_S = 3_600.0


def teach(room: Classroom) -> None:
    """Delete a key while two readers are away, and have the cleaner remove the tombstone."""
    page, topic = room.page, room.topic("tombstones", delete_retention_ms=_RETENTION_MS)
    topic.put([("ann", '"Oslo"'), ("ben", '"Rome"'), ("eve", '"Kyiv"')])
    cache = fold(topic.records())
    stopped_at = topic.records()[-1].offset + 1
    view = _View(topic)
    view.follow()
    page.say(
        f"{topic.name} holds three keys. Two readers read them, and then stop: a cache that will continue at offset "
        f"{stopped_at}, and a view of cdc. While they are away, ben is deleted. A delete is a record with the key and "
        "without a value, a tombstone."
    )
    _show_life(room, topic)
    late = [each for each in topic.records() if each.offset >= stopped_at]
    cache = fold(late, cache)
    room.check("ben" in cache, "the cache has not heard of the delete")
    fresh = fold(topic.records())
    resumed = ", ".join(str(each.offset) for each in late)
    page.say(
        f"Now the cache continues at offset {stopped_at}. It gets offsets {resumed}: "
        "nothing about ben, and no error. It keeps a row that no longer exists anywhere else, a zombie. Reading on "
        "will never correct this, unless somebody writes ben again."
    )
    view.pretend_away()
    states = view.follow()
    page.table(
        "Who knows ben?",
        ("reader", "keys", "ben"),
        [
            ("the cache that went on", len(cache), cache.get("ben")),
            ("a reader that begins at offset 0", len(fresh), fresh.get("ben", "not there")),
            _row(*states[0]),
            _row(*states[-1]),
        ],
    )
    first, last = states[0][0], states[-1][0]
    room.check((first.state, last.state, last.generation) == ("suspect", "exact", 2), "the view became suspect")
    room.check(states[-1][2] is None and states[-1][1] == len(fresh), "the view no longer has ben")
    page.say(
        "A view notes the time when it last had read everything. To save you an hour of waiting, the lesson turned "
        f"this note back by an hour. So the view reported “{first.reason}”, and marked its answers as suspect. "
        "Meanwhile it read the topic from offset 0 into a second generation of rows, and then swapped the two. The "
        "sink does the same with replica tables."
    )
    page.remember(
        "A reader that is stopped, or behind, for longer than delete.retention.ms + min.compaction.lag.ms may miss a "
        "delete, and reading on never shows it. The only cure is to read from the beginning, and to drop each row that "
        "was not seen again. So set delete.retention.ms to at least twice the longest time that a reader may be away "
        "or a rebuild may take.",
        "cdc topics tombstones users -b localhost:9092 --slowest-reader 3d",
    )


def _show_life(room: Classroom, topic: Topic) -> None:
    """Delete ben, and show what happens to the tombstone until the cleaner removes it."""
    topic.put([("ben", None)])
    tombstone = topic.records()[-1]
    room.page.table(
        f"The life of the tombstone at offset {tombstone.offset}",
        ("seconds", "not met", "clock runs", "expired", "what happened"),
        _life(room, topic),
    )
    room.page.say(
        f"delete.retention.ms ({_RETENTION_MS:,} here, a day by default) does not count from the write. It counts from "
        "the first pass of the cleaner that meets the tombstone, and a later pass removes it. The cleaner passes only "
        "where something new was written: on an idle partition, a tombstone stays for ever."
    )
    room.check(all(each.key != "ben" for each in topic.records()), "no record of ben is left")


def _life(room: Classroom, topic: Topic) -> list[tuple[str, int, int, int, str]]:
    """Returns what happens to the only tombstone, and after how many seconds."""
    began, rows = time.monotonic(), []

    def note(what: str, seen: Tombstones) -> None:
        seconds = f"{time.monotonic() - began:.1f}"
        rows.append((seconds, seen.waiting, seen.fresh, seen.expired, what))

    def when(what: str, waiting: int, fresh: int, expired: int) -> None:
        wanted = Tombstones(waiting, fresh, expired)
        note(what, room.until(f"a tombstone, and {what}", lambda: wanted if _count(topic) == wanted else None))

    when("written", 1, 0, 0)
    topic.close_segments("ann", '"Oslo"')
    topic.set(min_cleanable_dirty_ratio=AT_ONCE)
    when("first pass: ben's row is gone, the tombstone stays", 0, 1, 0)
    when("expired, but nothing happens without a pass", 0, 0, 1)
    topic.put([("eve", '"Lviv"')])
    topic.close_segments("eve", '"Kyiv"')
    when("after new writes, a second pass: gone", 0, 0, 0)
    return rows


def _count(topic: Topic) -> Tombstones:
    (partition,) = topic.report().partitions
    return partition.tombstones


def _row(evidence: Evidence, count: int, ben: str | None) -> tuple[str, int, str]:
    return f"the view, {evidence.state}, generation {evidence.generation}", count, ben or "not there"


class _View:
    """An in-memory view of one topic, filled the way ``cdc serve`` fills it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._contents = MemoryStore().contents

    def follow(self) -> list[tuple[Evidence, int, str | None]]:
        """Read until the table is exact; returns its evidence, its row count and ben's row after each commit."""
        seen: list[tuple[Evidence, int, str | None]] = []
        exact = threading.Event()
        name = self._topic.name
        view = TableView(MemoryStore(self._contents))

        def look(_rows: object) -> None:
            state = view.tables()[name].state
            if state == "loading":
                return
            found = view.get(name, ["ben"])
            seen.append((found.evidence, view.count(name)[0], found.row.row.decode() if found.row else None))
            if state == "exact":
                exact.set()

        topics = {name: OtherTopic(key="string", value="json")}
        with (
            closing(TopicWriter(MemoryStore(self._contents), "learn", topics)) as writer,
            closing(TopicReader(self._topic.options, stamps=True)) as reader,
        ):
            writer.lock()
            TopicSession(reader, writer, [name], exact, look).run()
        return seen

    def pretend_away(self) -> None:
        """Turn back the time when everything was last read, as if the view had been stopped for an hour since."""
        with closing(MemoryStore(self._contents)) as store:
            store.lock()
            known = store.read(read_feed).topics[self._topic.name]
            transaction = store.begin()
            earlier = replace(known, read_since=(known.read_since or 0.0) - _AWAY_S)
            transaction.put(FEED, [Item(topic_key(self._topic.name), encode(earlier))])
            transaction.commit()
