"""One key's records → what each changed, and the row as it was at a moment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from cdc.base.errors import ConfigError, TopicRefused
from cdc.base.lsn import LSN
from cdc.contract.header import BACKFILL, INSERT
from cdc.contract.history import HistoryRecord

Moment: TypeAlias = LSN | datetime
"""A place in the WAL, which is exact, or a time by the source's clock."""

Row: TypeAlias = Mapping[str, str]
"""JSON text by column."""


class TrailEntry(NamedTuple):
    """A record as it was read; ``moved`` when the key of the row changed."""

    offset: int
    value: bytes
    record: HistoryRecord
    moved: bool


@dataclass(frozen=True, slots=True)
class Trail:
    """What the partition of a key tells.

    Attributes:
        entries: of the key, in order.
        first: the oldest record in the partition, of whatever key; None when there is none.
        removed: older ones were there once.
        widths: how many columns each definition of the table has, by fingerprint: an old row with fewer is not whole.
    """

    entries: Sequence[TrailEntry]
    first: HistoryRecord | None
    removed: bool
    widths: Mapping[str, int]


class ColumnChange(NamedTuple):
    """A column: before and after, None where there was or is no row, or nobody knows."""

    column: str
    old: str | None
    new: str | None


class RowThen(NamedTuple):
    """The row at a moment, None when there was none, and how that is known."""

    row: Row | None
    because: str


def parse_moment(text: str) -> Moment:
    """An LSN, or an ISO 8601 time; without a zone it is UTC.

    Raises:
        ConfigError: neither.
    """
    try:
        if "/" in text:
            return LSN.parse(text)
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is neither a time nor an LSN", remedy="write 2026-03-29T01:30:00Z, 2026-03-29 or 0/1925728"
        ) from error
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def time_of(record: HistoryRecord) -> datetime:
    """When it was committed, to the microsecond."""
    seconds, micros = divmod(record.ts, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)


def within(record: HistoryRecord, since: Moment | None, until: Moment | None) -> bool:
    """Whether a record lies between two moments, both of them included."""
    is_early = since is not None and _compare(record, since) < 0
    is_late = until is not None and _compare(record, until) > 0
    return not is_early and not is_late


def with_changes(entries: Sequence[TrailEntry]) -> Iterator[tuple[TrailEntry, list[ColumnChange]]]:
    """Each record with the columns that it changed; all of them where the row before is not known or was none."""
    before: Row | None = None
    for entry in entries:
        record = entry.record
        if record.old is not None and (before is None or entry.moved):
            before = record.old
        after = record.new or {}
        known = before or {}
        columns = dict.fromkeys([*known, *after])
        yield (
            entry,
            [
                ColumnChange(name, known.get(name), after.get(name))
                for name in columns
                if known.get(name) != after.get(name)
            ],
        )
        before = record.new


def row_at(trail: Trail, moment: Moment, current: Callable[[], Row | None]) -> RowThen:
    """The row at a moment: changes with a smaller LSN count, as in a cut; at a time those up to it.

    Args:
        trail: of the key.
        moment: not in the future.
        current: the row as the state topic has it; asked only when the history has no record of the key.

    Raises:
        TopicRefused: the history does not reach back so far, or does not hold the row before its first change.
    """
    first = trail.first
    if first is None:
        raise TopicRefused(
            "the history holds no record yet, in the partition of this key",
            remedy="wait until the row changes, or ask for it as it is now: cdc get",
        )
    if not _is_past(first, moment):
        raise TopicRefused(
            f"the history reaches back to {_when(first)}, not to {_text(moment)}"
            + (": older records were removed" if trail.removed else ": it began then"),
            remedy="ask for a later moment; topics.history_retention_ms says how long changes are kept",
        )
    past = [entry.record for entry in trail.entries if _is_past(entry.record, moment)]
    if past:
        return RowThen(past[-1].new, f"since {_when(past[-1])}")
    if not trail.entries:
        return RowThen(current(), "did not change since the history begins")
    return _before(trail)


def _before(trail: Trail) -> RowThen:
    """The row before the first record of its key, back to where the history begins."""
    record = trail.entries[0].record
    if record.op == INSERT:
        return RowThen(None, f"inserted at {_when(record)}")
    if record.op == BACKFILL:
        return RowThen(record.new, f"did not change until it was read at {_when(record)}")
    if record.old is not None and len(record.old) == trail.widths.get(record.schema):
        return RowThen(record.old, f"until {_when(record)}")
    raise TopicRefused(
        f"the history does not hold the row from before {_when(record)}: the change that came then did not bring the "
        "whole old row",
        remedy="for the future: cdc backfill records every row, and REPLICA IDENTITY FULL records every old row",
    )


def _is_past(record: HistoryRecord, moment: Moment) -> bool:
    order = _compare(record, moment)
    return order < 0 if isinstance(moment, LSN) else order <= 0


def _compare(record: HistoryRecord, moment: Moment) -> int:
    if isinstance(moment, LSN):
        return int(record.position.lsn) - int(moment)
    time = time_of(record)
    return (time > moment) - (time < moment)


def _when(record: HistoryRecord) -> str:
    return f"{time_of(record):%Y-%m-%d %H:%M:%S.%fZ} ({record.position.lsn})"


def _text(moment: Moment) -> str:
    return str(moment) if isinstance(moment, LSN) else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%fZ}"
