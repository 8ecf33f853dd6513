"""Formats records: lines for people, JSON for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from cdc.contract.json_members import member_texts
from cdc.topics.lookup.record import Shown

_OPS: Final[Mapping[str, str]] = {"c": "insert", "u": "update", "d": "delete", "r": "backfill", "t": "truncate"}


def row_lines(shown: Shown, now_us: int) -> Iterator[str]:
    """Yields the row, with a line for each column, and then where it comes from."""
    if shown.row is None:
        yield "no such row: " + (
            f"{operation(shown)} is the newest record of the key" if shown.op else "it was deleted"
        )
    else:
        try:
            columns = member_texts(shown.row.decode())
        except ValueError:
            yield shown.row.decode()
        else:
            width = max(map(len, columns), default=0)
            yield from (f"{name:<{width}}  {'NULL' if value == 'null' else value}" for name, value in columns.items())
    yield f"({_evidence(shown, now_us)})"


def row_json(shown: Shown, now_us: int) -> str:
    """Returns one JSON object, in which ``row`` is null if the key has no row."""
    place = _place(shown)
    place["age_s"] = None if shown.ts is None else round(max(now_us - shown.ts, 0) / 1e6, 6)
    return _object(shown, place)


def change_line(shown: Shown) -> str:
    """Returns a change as one line."""
    row = "" if shown.row is None else f"  {shown.row.decode()}"
    if shown.lsn is None:
        return f"{shown.partition}/{shown.offset}  {operation(shown):<8}  {shown.key.decode()}{row}"
    return f"{_time(shown.ts or 0)}  {shown.lsn}  {operation(shown):<8}  {shown.key.decode()}{row}"


def change_json(shown: Shown) -> str:
    """Returns a change as one JSON object, in which ``row`` is null after a delete."""
    return _object(shown, {"op": operation(shown), **_place(shown)})


def _place(shown: Shown) -> dict[str, object]:
    return {
        "topic": shown.topic,
        "partition": shown.partition,
        "offset": shown.offset,
        "lsn": None if shown.lsn is None else str(shown.lsn),
        "committed": None if shown.ts is None else _iso(shown.ts),
    }


def _object(shown: Shown, others: Mapping[str, object]) -> str:
    """Returns a JSON object with key and row copied as text: parsing would change values such as 1.50."""
    between = json.dumps(others, ensure_ascii=False)[1:-1]
    row = "null" if shown.row is None else shown.row.decode()
    return f'{{"key": {shown.key.decode()}, {between}, "row": {row}}}'


def _evidence(shown: Shown, now_us: int) -> str:
    place = f"partition {shown.partition} of {shown.topic}, offset {shown.offset}"
    if shown.lsn is None or shown.ts is None:
        return place
    return f"{place}; LSN {shown.lsn}, committed {_time(shown.ts)}, {max(now_us - shown.ts, 0) / 1e6:,.1f} s ago"


def operation(shown: Shown) -> str:
    """Returns what the record says was done, in one word."""
    return _OPS.get(shown.op) or ("delete" if shown.row is None else "write")


def _time(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}.{ts % 1_000_000:06d}Z"


def _iso(ts: int) -> str:
    return datetime.fromtimestamp(ts // 1_000_000, UTC).replace(microsecond=ts % 1_000_000).isoformat()
