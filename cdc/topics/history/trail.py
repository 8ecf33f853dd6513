"""The records of one key → what each of them changed, and the row as it was at a moment. Pure."""

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
"""An LSN, which is exact, or a time by the source's clock."""

Row: TypeAlias = Mapping[str, str]
"""JSON text by column."""


class TrailEntry(NamedTuple):
    """A record as it was read. ``moved`` says that the row's key changed."""

    offset: int
    value: bytes
    record: HistoryRecord
    moved: bool


@dataclass(frozen=True, slots=True)
class Trail:
    """What the history holds of a key.

    Attributes:
        entries: the records of the key, in order.
        first: the oldest record of any key in the partition; None when there is none.
        removed: the partition once held older records.
        widths: the number of columns of each definition, by fingerprint: an old row with fewer is incomplete.
    """

    entries: Sequence[TrailEntry]
    first: HistoryRecord | None
    removed: bool
    widths: Mapping[str, int]


class ColumnChange(NamedTuple):
    """A column before and after a change. None means that there was no such row or column, or that it is not known."""

    column: str
    old: str | None
    new: str | None


class RowThen(NamedTuple):
    """The row at a moment, or None if it did not exist, and how that is known."""

    row: Row | None
    because: str


def parse_moment(text: str) -> Moment:
    """Parses an LSN or an ISO 8601 time, which is UTC if it has no zone.

    Raises:
        ConfigError: the text is neither.
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
    """Returns when the change was committed, to the microsecond."""
    seconds, micros = divmod(record.ts, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)


def within(record: HistoryRecord, since: Moment | None, until: Moment | None) -> bool:
    """Returns whether a record lies between two moments, both included."""
    is_early = since is not None and _compare(record, since) < 0
    is_late = until is not None and _compare(record, until) > 0
    return not is_early and not is_late


def with_changes(entries: Sequence[TrailEntry]) -> Iterator[tuple[TrailEntry, list[ColumnChange]]]:
    """Yields each record with the columns that it changed: all of them if there was no row before, or none is known."""
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
    """Returns the row at a moment. For an LSN, changes before it count, as in a cut; for a time, changes up to it.

    Args:
        trail: of the key.
        moment: not in the future.
        current: reads the row from the state topic; called only when the history has no record of the key.

    Raises:
        TopicRefused: the history does not reach back that far, or does not hold the row before its first change.
    """
    first = trail.first
    if first is None:
        raise TopicRefused(
            "the history holds no record yet in the partition of this key",
            remedy="wait until the row changes, or read the current row: cdc get",
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
    """Returns the row from the beginning of the history up to the key's first record."""
    record = trail.entries[0].record
    if record.op == INSERT:
        return RowThen(None, f"inserted at {_when(record)}")
    if record.op == BACKFILL:
        return RowThen(record.new, f"did not change until it was read at {_when(record)}")
    if record.old is not None and len(record.old) == trail.widths.get(record.schema):
        return RowThen(record.old, f"until {_when(record)}")
    raise TopicRefused(
        f"the history does not hold the row from before {_when(record)}: the change at that time did not carry the "
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
