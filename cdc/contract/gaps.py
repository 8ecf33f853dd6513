"""Whether changes may be missing between what is published and what comes next. Pure: facts in, ``GapError``s out.

Theory of operation. Everything rests on three things that must fit together: the slot (which WAL can still come), the
stored progress (which WAL is published) and the topics (what was published). Each may be lost, exchanged or set back
behind our back, and then the stream would go on without a word. So each is compared with what was written down of it.

The publication decides what of the WAL comes, and is compared, too.

A ``SlotGap`` is closed by a slot made anew and a backfill, with sweep, of every table; a ``TableGap`` by one of its
tables. Any other ``GapError`` needs a person: most of all another database, which must never overwrite topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cdc.base.errors import GapError
from cdc.base.lsn import LSN, ZERO
from cdc.contract.known_topic import KnownTopic
from cdc.contract.membership import Membership
from cdc.contract.record import Progress, SourceIdentity
from cdc.contract.slot_state import SlotState

_HEAL: Final = "CDC_SOURCE__ON_GAP=rebackfill cdc run"

_INVALIDATED: Final[Mapping[str, str]] = {
    "wal_removed": "it held back more WAL than max_slot_wal_keep_size allows",
    "rows_removed": "the primary removed catalog rows that it needed; set hot_standby_feedback = on",
    "wal_level_insufficient": "wal_level was lowered below logical",
    "idle_timeout": "nobody read from it for longer than idle_replication_slot_timeout",
}
"""https://www.postgresql.org/docs/current/view-pg-replication-slots.html"""


class SlotGap(GapError):
    """What is published does not connect to what the slot will deliver.

    Args:
        message: names slot or server, and what may be missing.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            message, remedy=f"{_HEAL}  # makes the slot anew, publishes all tables again, deletes rows that are gone"
        )


class TableGap(GapError):
    """Rows of some tables may be missing, and a backfill of these brings them in.

    Args:
        message: says what may be missing, and why.
        tables: ``schema.table`` of each.
    """

    def __init__(self, message: str, tables: Sequence[str]) -> None:
        again = tables[0] if len(tables) == 1 else "all tables"
        super().__init__(message, remedy=f"{_HEAL}  # publishes {again} again, deletes rows that are gone")
        self.tables = tuple(tables)


class TopicGap(TableGap):
    """A topic lost records; its tables are not whole."""


class PublicationGap(TableGap):
    """Tables were out of the publication for a while: what changed in them meanwhile is not in the stream."""


def published_until(stored: Progress) -> LSN:
    """Behind every position that a published record can have."""
    return stored.lsn if stored.partial is None else max(stored.lsn, LSN(stored.partial.lsn + 1))


def foreign_source(name: str, stored: Progress, source: SourceIdentity, database: str) -> GapError | None:
    """Whether these topics belong to another database. No backfill helps: it would mix two databases' rows."""
    before = stored.source
    if before.system_identifier != source.system_identifier:
        what = (
            f"the topics of {name!r} were published from another server: its system identifier was "
            f"{before.system_identifier}, this one's is {source.system_identifier}"
        )
    elif before.database_oid != source.database_oid:
        what = (
            f"the topics of {name!r} were published from another database of this server: its oid was "
            f"{before.database_oid}, that of {database!r} is {source.database_oid}"
        )
    else:
        return None
    return GapError(
        what,
        remedy="correct source.dsn; a database that was restored, upgraded or made anew gets a new `name`, and with it "
        "topics of its own",
    )


def stream_gap(
    *,
    name: str,
    stored: Progress,
    slot: SlotState | None,
    source: SourceIdentity,
    wal_end: LSN | None,
    left_at: Callable[[], LSN | None],
    newest: LSN = ZERO,
) -> SlotGap | None:
    """Whether the server can go on where the topics end.

    Args:
        name: of the slot.
        stored: the progress; of this cluster and database.
        slot: None when there is none.
        source: the server now.
        wal_end: None for a standby, whose end comes later.
        left_at: where this server's timeline left the stored one, None when it never did; asked only if they differ.
        newest: the newest commit LSN in the topics, where they may hold rows beyond the progress.
    """
    until, was, now = published_until(stored), stored.source.timeline, source.timeline
    until = max(until, LSN(newest + 1)) if newest else until
    if was != now:
        left = left_at()
        if left is None or left < until:
            how = f"left timeline {was} at {left}" if left else f"does not descend from timeline {was}"
            return SlotGap(
                f"the server is on timeline {now}, which {how}, and {until} is published: "
                "topics hold changes that this server never had, and may miss changes that it made meanwhile"
            )
    elif wal_end is not None and wal_end < max(stored.lsn, newest):
        return SlotGap(
            f"the server's WAL ends at {wal_end}, before {max(stored.lsn, newest)}, which is published: "
            "it was restored from an older copy, and topics hold changes that it does not have"
        )
    gap = slot_gap(name, stored, slot)
    if gap is not None and slot is None and was != now:
        return SlotGap(f"{gap.message}; the server was promoted (timeline {was} → {now}), and its slots did not follow")
    return gap


def slot_gap(name: str, stored: Progress, slot: SlotState | None) -> SlotGap | None:
    """Whether the slot still delivers everything behind the stored progress; arguments as for ``stream_gap``."""
    if slot is None:
        return SlotGap(
            f"replication slot {name!r} is gone, but topics were published up to {stored.lsn}: "
            "changes since then may be missing"
        )
    if slot.lost:
        reason = slot.invalidation_reason or slot.wal_status or "lost"
        why = f"{reason}: {_INVALIDATED[reason]}" if reason in _INVALIDATED else reason
        return SlotGap(f"replication slot {name!r} is lost ({why}): changes since {stored.lsn} are missing")
    if slot.confirmed_flush_lsn is not None and slot.confirmed_flush_lsn > stored.lsn:
        return SlotGap(
            f"replication slot {name!r} was confirmed up to {slot.confirmed_flush_lsn}, beyond what is published "
            f"({stored.lsn}): it was made anew, or somebody else read from it, and changes in between are missing"
        )
    return None


def slot_before_publication(slot: str, publication: str) -> GapError:
    """The slot is older than the publication, and the server refuses to read the WAL between the two, for ever."""
    return GapError(
        f"replication slot {slot!r} begins before publication {publication!r} was made, so the server cannot decode "
        "the WAL between the two",
        remedy=f"SELECT pg_drop_replication_slot('{slot}');  -- then: {_HEAL}  # makes it anew",
    )


def forgotten_progress(progress_topic: str, newest: LSN) -> SlotGap:
    """The topics hold records, and nothing says how far they go."""
    return SlotGap(
        f"topic {progress_topic!r} holds no progress, but topics hold records up to {newest}: "
        "the position to go on from is lost, and changes since then may be missing"
    )


def publication_gaps(
    name: str, recorded: Mapping[str, Membership], now: Mapping[str, Membership], *, options_tell: bool
) -> list[GapError]:
    """Changes that the publication may have left out since it was seen last.

    Args:
        name: of the publication.
        recorded: what carried each table then.
        now: what carries it now; tables of other names, and tables made anew, are no gap.
        options_tell: whether a publication whose options were written counts: PostgreSQL 14 has them written when
            partitions are attached.
    """
    same = [table for table, was in recorded.items() if table in now and now[table].table == was.table]
    for table in same:
        was, one = recorded[table], now[table]
        if was.publication != one.publication:
            return [
                SlotGap(
                    f"publication {name!r} was dropped and made anew: changes between the two are not in the stream"
                )
            ]
        if was.version != one.version and was.owner == one.owner and options_tell:
            return [
                SlotGap(
                    f"publication {name!r} was altered (its options, or its name): it may have left out changes for "
                    "a while, and nobody can tell now"
                )
            ]
    if absent := [table for table in same if not set(recorded[table].routes) <= set(now[table].routes)]:
        return [
            PublicationGap(
                f"publication {name!r} did not carry {', '.join(sorted(absent))} for a while, or carried less of it: "
                "what changed meanwhile is not in the stream",
                sorted(absent),
            )
        ]
    return []


def topic_gaps(
    known: Mapping[str, KnownTopic], now: Mapping[str, KnownTopic], tables: Mapping[str, Sequence[str]]
) -> list[GapError]:
    """What topics lost since they were seen last.

    Args:
        known: as they were seen last.
        now: those that exist.
        tables: whose rows a topic holds, by topic, for all topics that matter.
    """
    found: list[GapError] = []
    for topic, names in tables.items():
        before, after = known.get(topic), now.get(topic)
        if before is None:
            continue
        if after is None:
            found.append(TopicGap(f"topic {topic!r} is gone, with everything that was published into it", names))
        elif after.topic_id != before.topic_id:
            found.append(
                TopicGap(f"topic {topic!r} was deleted and made anew: what was published into it before is gone", names)
            )
        elif len(after.ends) != len(before.ends):
            found.append(_scattered(topic, before, after))
        elif lost := _lost_records(before, after):
            found.append(TopicGap(f"topic {topic!r} lost records: {lost}", names))
    return found


def _scattered(topic: str, before: KnownTopic, after: KnownTopic) -> GapError:
    return GapError(
        f"topic {topic!r} has {len(after.ends)} partitions now, and {len(before.ends)} when its keys were published: "
        "a key may lie in two of them now, and its older record would stay for ever",
        remedy=f"kafka-topics.sh --bootstrap-server … --delete --topic {topic}  # then: {_HEAL}",
    )


def _lost_records(before: KnownTopic, after: KnownTopic) -> str:
    """In words, for the first partition that lost some; empty when none did."""
    for number, (low, end) in enumerate(zip(after.low, after.ends, strict=True)):
        if end < before.ends[number]:
            return (
                f"partition {number} ends at offset {end}, and went to {before.ends[number]} "
                "(a broker's disk was lost or restored, or a replica that was behind became leader)"
            )
        if low > before.low[number]:
            return (
                f"partition {number} begins at offset {low}, and began at {before.low[number]} "
                "(somebody deleted records, or cleanup.policy was not compact)"
            )
    return ""
