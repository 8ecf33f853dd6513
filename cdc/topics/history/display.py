"""Formats a key's history: a table for a terminal, plain lines for other outputs, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from cdc.contract.history import HistoryRecord
from cdc.topics.history.trail import ColumnChange, RowThen, Trail, TrailEntry, time_of

_OPS: Final[Mapping[str, str]] = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "backfill",
    "t": "truncate",
}
_COLOURS: Final[Mapping[str, str]] = {"c": "green", "d": "red", "t": "red", "r": "blue"}


def reach_line(trail: Trail) -> str:
    """Returns a line that says from when on the history is complete."""
    if trail.first is None:
        return "the history holds no record yet in the partition of this key"
    why = "older records were removed" if trail.removed else "it began then"
    return f"the history reaches back to {_time(trail.first)} ({trail.first.position.lsn}): {why}"


def as_table(found: Iterable[tuple[TrailEntry, Sequence[ColumnChange]]]) -> Table:
    """Returns a table for a terminal, with a row for each change."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("Time (UTC)", "Op", "LSN", "Xid"):
        table.add_column(title, no_wrap=True)
    table.add_column("Changed", overflow="fold")
    for entry, changes in found:
        record = entry.record
        op = Text(_op(entry), style=_COLOURS.get(record.op, ""))
        lines = "\n".join(_changed(entry, changes))
        table.add_row(_time(record), op, str(record.position.lsn), _xid(record), Text(lines))
    return table


def as_lines(found: Iterable[tuple[TrailEntry, Sequence[ColumnChange]]]) -> Iterator[str]:
    """Yields plain text: a line for each change, and its columns below it."""
    for entry, changes in found:
        record = entry.record
        yield f"{_time(record)}  {_op(entry):<8}  {record.position.lsn}  xid {_xid(record)}"
        yield from (f"    {line}" for line in _changed(entry, changes))


def entry_json(entry: TrailEntry, key: bytes, partition: int) -> str:
    """Returns one JSON object: the record's value unchanged, with key, partition and offset before it."""
    place = f'{{"key":{key.decode()},"partition":{partition},"offset":{entry.offset},'
    return place + entry.value.decode()[1:]


def as_changes(entry: TrailEntry, changes: Sequence[ColumnChange]) -> dict[str, object]:
    """Returns one change as plain values, in the words of ``as_lines``."""
    record = entry.record
    return {
        "time": _time(record),
        "op": _op(entry),
        "lsn": str(record.position.lsn),
        "xid": record.xid,
        "changes": _changed(entry, changes),
    }


def row_lines(then: RowThen) -> Iterator[str]:
    """Yields the row at a moment, with a line for each column."""
    if then.row is None:
        yield f"no such row ({then.because})"
        return
    width = max(map(len, then.row))
    yield from (f"{name:<{width}}  {_shown(value)}" for name, value in then.row.items())
    yield f"({then.because})"


def row_json(then: RowThen, key: bytes, moment: str) -> str:
    """Returns one JSON object: ``key``, ``as_of``, ``row`` (or null) and ``because``."""
    row = "null"
    if then.row is not None:
        row = (
            "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in then.row.items()) + "}"
        )
    return f'{{"key":{key.decode()},"as_of":{json.dumps(moment)},"row":{row},"because":{json.dumps(then.because)}}}'


def _changed(entry: TrailEntry, changes: Sequence[ColumnChange]) -> list[str]:
    lines = [_change(entry.record, change) for change in changes]
    if entry.moved and entry.record.op == "c":
        lines.insert(0, "the row had another key before")
    elif entry.moved:
        lines.insert(0, "the row has another key from here on")
    if entry.record.is_newer:
        lines.append("(a long value was read later, and may be newer than this change)")
    return lines or (["nothing"] if entry.record.new is not None else [])


def _change(record: HistoryRecord, change: ColumnChange) -> str:
    if record.new is None:
        return f"{change.column} was {_shown(change.old)}"
    if change.old is None:
        return f"{change.column} = {_shown(change.new)}"
    return f"{change.column}: {_shown(change.old)} → {_shown(change.new)}"


def _op(entry: TrailEntry) -> str:
    return "key change" if entry.moved else _OPS[entry.record.op]


def _shown(value: str | None) -> str:
    if value is None:
        return "(no such column)"
    return "NULL" if value == "null" else value


def _time(record: HistoryRecord) -> str:
    return f"{time_of(record):%Y-%m-%d %H:%M:%S.%f}Z"


def _xid(record: HistoryRecord) -> str:
    return "-" if record.xid is None else str(record.xid)
