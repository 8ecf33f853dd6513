"""Finds out whether changes may be missing between what is published and what comes next. Pure: returns ``GapError``s.

Theory of operation. Three things must fit together: the slot (which WAL can still come), the stored progress (which WAL
is published) and the topics (what was published). Each may be lost, replaced or restored to an older state unnoticed,
and the stream would go on as if nothing had happened. So each is compared with what was recorded about it. The
publication decides which changes in the WAL are sent, so it is compared, too.

A new slot and a backfill of every table, with sweep, close a ``SlotGap``. A backfill of its tables closes a
``TableGap``. Any other ``GapError`` needs a person, above all another database, which must never overwrite the topics.
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
"""Explains the values of ``invalidation_reason``.

https://www.postgresql.org/docs/current/view-pg-replication-slots.html
"""


class SlotGap(GapError):
    """The slot will not deliver everything that follows the published changes.

    Args:
        message: names slot or server, and says what may be missing.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            message, remedy=f"{_HEAL}  # recreates the slot, publishes all tables again, deletes rows that are gone"
        )


class TableGap(GapError):
    """Rows of some tables may be missing; a backfill of these tables publishes them.

    Args:
        message: says what may be missing, and why.
        tables: ``schema.table`` of each.
    """

    def __init__(self, message: str, tables: Sequence[str]) -> None:
        again = tables[0] if len(tables) == 1 else "all tables"
        super().__init__(message, remedy=f"{_HEAL}  # publishes {again} again, deletes rows that are gone")
        self.tables = tuple(tables)


class TopicGap(TableGap):
    """A topic lost records, so it no longer holds its whole table."""


class PublicationGap(TableGap):
    """Tables were out of the publication for a while; the stream lacks their changes from that time."""


def published_until(stored: Progress) -> LSN:
    """Returns an LSN past every record that the stored progress covers."""
    return stored.lsn if stored.partial is None else max(stored.lsn, LSN(stored.partial.lsn + 1))


def foreign_source(name: str, stored: Progress, source: SourceIdentity, database: str) -> GapError | None:
    """Returns the gap if these topics belong to another database: a backfill would mix the rows of two databases."""
    before = stored.source
    if before.system_identifier != source.system_identifier:
        what = (
            f"the topics of {name!r} were published from another server: its system identifier was "
            f"{before.system_identifier}, that of this server is {source.system_identifier}"
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
        remedy="correct source.dsn; if the database was restored, upgraded or recreated, give the bridge a new `name`, "
        "and with it new topics",
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
    """Returns the gap if the server cannot go on where the topics end.

    Args:
        name: the slot's name.
        stored: the progress of this cluster and database.
        slot: the slot's state; None when there is no slot.
        source: the server now.
        wal_end: the end of the server's WAL; None for a standby, which is still receiving WAL.
        left_at: returns where this server's timeline left the stored one, None if it never did; called only if the
            timelines differ.
        newest: the newest commit LSN in the topics, if they may hold rows beyond the progress.
    """
    until, was, now = published_until(stored), stored.source.timeline, source.timeline
    until = max(until, LSN(newest + 1)) if newest else until
    if was != now:
        left = left_at()
        if left is None or left < until:
            how = f"left timeline {was} at {left}" if left else f"does not descend from timeline {was}"
            return SlotGap(
                f"the server is on timeline {now}, which {how}, and {until} is published: "
                "topics hold changes that this server never had, and may lack changes that it made meanwhile"
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
    """Returns the gap if the slot cannot deliver all that follows the progress; arguments as for ``stream_gap``."""
    if slot is None:
        return SlotGap(
            f"replication slot {name!r} is gone, but topics were published up to {stored.lsn}: "
            "changes since then may be missing"
        )
    if slot.lost:
        return _lost_slot(slot, f"since {stored.lsn}")
    if slot.confirmed_flush_lsn is not None and slot.confirmed_flush_lsn > stored.lsn:
        return SlotGap(
            f"replication slot {name!r} was confirmed up to {slot.confirmed_flush_lsn}, beyond what is published "
            f"({stored.lsn}): it was recreated, or somebody else read from it, and changes in between are missing"
        )
    return None


def lost_before_the_first_progress(slot: SlotState) -> SlotGap:
    """The gap of a slot that was lost although nothing was ever published."""
    return _lost_slot(slot, "since it was created")


def _lost_slot(slot: SlotState, since: str) -> SlotGap:
    reason = slot.invalidation_reason or slot.wal_status or "lost"
    why = f"{reason}: {_INVALIDATED[reason]}" if reason in _INVALIDATED else reason
    return SlotGap(f"replication slot {slot.name!r} is lost ({why}): changes {since} are missing")


def slot_before_publication(slot: str, publication: str) -> GapError:
    """The gap of a slot that is older than its publication: the server never decodes the WAL between the two."""
    return GapError(
        f"replication slot {slot!r} begins before publication {publication!r} was created, so the server cannot decode "
        "the WAL between the two",
        remedy=f"SELECT pg_drop_replication_slot('{slot}');  -- then: {_HEAL}  # recreates the slot",
    )


def forgotten_progress(progress_topic: str, newest: LSN) -> SlotGap:
    """The gap of topics that hold records although no progress is stored: nothing says where to go on."""
    return SlotGap(
        f"topic {progress_topic!r} holds no progress, but topics hold records up to {newest}: "
        "the position to go on from is lost, and changes since then may be missing"
    )


def publication_gaps(
    name: str, recorded: Mapping[str, Membership], now: Mapping[str, Membership], *, options_tell: bool
) -> list[GapError]:
    """Returns gaps for changes that the publication may have left out since the bridge last saw it.

    Args:
        name: the publication's name.
        recorded: what carried each table then.
        now: what carries each table now. A table of another name, or one that was recreated, is not a gap.
        options_tell: whether rewritten options count. They do not with PostgreSQL 14, which also rewrites them when
            partitions are attached.
    """
    same = [table for table, was in recorded.items() if table in now and now[table].table == was.table]
    for table in same:
        was, one = recorded[table], now[table]
        if was.publication != one.publication:
            return [
                SlotGap(f"publication {name!r} was dropped and recreated: changes in between are not in the stream")
            ]
        if was.version != one.version and was.owner == one.owner and options_tell:
            return [
                SlotGap(
                    f"publication {name!r} was altered (its options, or its name): it may have left out changes for "
                    "a while, and nothing shows which"
                )
            ]
    if absent := [table for table in same if not set(recorded[table].routes) <= set(now[table].routes)]:
        return [
            PublicationGap(
                f"publication {name!r} did not carry {', '.join(sorted(absent))} for a while, or carried less of it: "
                "the stream lacks changes from that time",
                sorted(absent),
            )
        ]
    return []


def topic_gaps(
    known: Mapping[str, KnownTopic], now: Mapping[str, KnownTopic], tables: Mapping[str, Sequence[str]]
) -> list[GapError]:
    """Returns gaps for what topics lost since the bridge last saw them.

    Args:
        known: the topics as they were last seen.
        now: the topics that exist.
        tables: the tables whose rows a topic holds, by topic; other topics are not compared.
    """
    found: list[GapError] = []
    for topic, names in tables.items():
        before, after = known.get(topic), now.get(topic)
        if before is None:
            continue
        if after is None:
            found.append(TopicGap(f"topic {topic!r} is gone, with all its records", names))
        elif after.topic_id != before.topic_id:
            found.append(TopicGap(f"topic {topic!r} was deleted and recreated: its earlier records are gone", names))
        elif len(after.ends) != len(before.ends):
            found.append(_scattered(topic, before, after))
        elif lost := _lost_records(before, after):
            found.append(TopicGap(f"topic {topic!r} lost records: {lost}", names))
    return found


def _scattered(topic: str, before: KnownTopic, after: KnownTopic) -> GapError:
    return GapError(
        f"topic {topic!r} has {len(after.ends)} partitions now, but {len(before.ends)} when its keys were published: "
        "a key may now lie in two partitions, and its older record would stay for ever",
        remedy=f"kafka-topics.sh --bootstrap-server … --delete --topic {topic}  # then: {_HEAL}",
    )


def _lost_records(before: KnownTopic, after: KnownTopic) -> str:
    """Says in words which records the first damaged partition lost; empty if no partition lost any."""
    for number, (low, end) in enumerate(zip(after.low, after.ends, strict=True)):
        if end < before.ends[number]:
            return (
                f"partition {number} ends at offset {end}, but reached {before.ends[number]} before "
                "(a broker's disk was lost or restored, or a replica that was behind became leader)"
            )
        if low > before.low[number]:
            return (
                f"partition {number} begins at offset {low}, but began at {before.low[number]} before "
                "(somebody deleted records, or cleanup.policy was not compact)"
            )
    return ""
