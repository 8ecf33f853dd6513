"""Shows ``cdc status`` to people, in plain lines or as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cdc.base.words import size
from cdc.ops.status.document import Document


def as_lines(document: Document) -> list[str]:
    """Returns plain text: a line for each part, replica table and problem."""
    lines = [f"{part:<8} {text}" if len(part) > 7 else f"{part:<8}{text}" for part, text in _parts(document)]
    for row in _tables(document):
        under_way = f"; {row['under_way']}" if row["under_way"] else ""
        lines.append(f"table   {row['replica_table']}: {row['state']}, {row['rows_applied']:,} rows applied{under_way}")
    for problem in document["problems"]:
        lines.append(f"PROBLEM {problem['part']}: {problem['text']}")
        lines += [f"        remedy: {problem['remedy']}"] if problem["remedy"] else []
    return [*lines, _verdict(document)]


def as_table(document: Document) -> Group:
    """Returns the same as ``as_lines`` for a terminal, as tables in colour."""
    parts = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for part, text in _parts(document):
        parts.add_row(Text(part, style="bold"), Text(text))
    tables = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("Replica table", "State"):
        tables.add_column(title)
    tables.add_column("Rows applied", justify="right")
    tables.add_column("Under way", overflow="fold")
    for row in _tables(document):
        colour = {"exact": "green", "stopped": "bold red"}.get(row["state"], "yellow")
        applied, under_way = f"{row['rows_applied']:,}", row["under_way"] or ""
        tables.add_row(row["replica_table"], Text(row["state"], style=colour), applied, Text(under_way))
    end = Text()
    for problem in document["problems"]:
        end.append(f"{problem['part']}: {problem['text']}\n", style="bold red")
        end.append(f"  {problem['remedy']}\n" if problem["remedy"] else "", style="cyan")
    end.append(_verdict(document), style="green" if document["healthy"] else "red")
    return Group(parts, *([tables] if tables.row_count else []), end)


_STATES: Final[Mapping[str, str]] = {
    "running": "running",
    "waiting": "waiting for a server",
    "retrying": "retrying after an error",
    "still": "hanging",
    "blocked": "kept waiting by a lock",
    "down": "not running",
    "unknown": "unknown",
}
"""Words for the states of bridge and sink. The problems say why a process is in one."""


def _parts(document: Document) -> list[tuple[str, str]]:
    source, topics, sink = document["source"], document["topics"], document["sink"]
    rows = [("source", _silence(source)), ("topics", _silence(topics))]
    if "wal_lsn" in source:
        rows[0] = ("source", f"WAL {source['wal_lsn']}, {_slot_text(source['slot'])}")
    if "published_lsn" in topics:
        rows[1] = ("topics", _topics_text(topics))
    if document["bridge"]["why"]:
        rows.insert(1, ("bridge", _STATES[document["bridge"]["state"]]))
    rows += [("left out", each["reason"]) for each in source.get("left_out", ())]
    rows += [("backfill", _backfill_text(each)) for each in document["backfills"] if each["state"] != "done"]
    if done := sum(each["state"] == "done" for each in document["backfills"]):
        rows.append(("backfill", f"{done} {'table' if done == 1 else 'tables'} done"))
    if sink is not None:
        rows.append(("sink", _sink_text(sink) if "running" in sink else _silence(sink)))
    return rows


def _silence(part: Mapping[str, Any]) -> str:
    return "no data" if part["reachable"] else "unreachable"


def _topics_text(topics: Mapping[str, Any]) -> str:
    partial = " and part of a big transaction" if topics["partial"] else ""
    lag = f", lag {_bytes(topics['lag_bytes'])}" if topics["lag_bytes"] is not None else ""
    age = f"; newest commit {_seconds(topics['age_seconds'])} ago" if topics["commit_time"] else ""
    return f"published {topics['published_lsn']}{partial}{lag}{age}"


def _backfill_text(backfill: Mapping[str, Any]) -> str:
    rows = f"{backfill['rows']:,} of about {backfill['estimated_rows']:,} rows"
    parts = [f"{backfill['table']} {backfill['state']}", f"{backfill['done']:.0%}", rows]
    if backfill["rows_per_second"] is not None:
        parts.append(f"{backfill['rows_per_second']:,.0f} rows/s")
    if backfill["seconds_left"] is not None:
        parts.append(f"{_seconds(backfill['seconds_left'])} left")
    parts += [] if backfill["whole"] else ["topic incomplete"]
    why, *_ = (backfill["reason"] or "").splitlines() or [""]
    return ", ".join(parts) + (f": {why}" if why else "")


def _slot_text(slot: Mapping[str, Any] | None) -> str:
    if slot is None:
        return "no slot"
    reader = f"read by pid {slot['active_pid']}" if slot["active"] else "read by nobody"
    if waiting := slot["waiting_bridges"]:
        reader += f" ({waiting} more {'bridge waits' if waiting == 1 else 'bridges wait'} for it)"
    return (
        f"slot {slot['name']} {reader}, confirmed {slot['confirmed_flush_lsn']}, lag {_bytes(slot['lag_bytes'])} and "
        f"{_seconds(slot['lag_seconds'])}; keeps {_bytes(slot['retained_bytes'])} of WAL ({slot['wal_status']})"
        + (f", room for {_bytes(slot['safe_wal_size'])} more" if slot["safe_wal_size"] is not None else "")
    )


def _sink_text(sink: Mapping[str, Any]) -> str:
    state = _STATES[sink["state"]]
    if sink["applied_lsn"] is None:
        return f"{state}, no cut yet"
    if sink["cut_lsn"] is None:
        return (
            f"{state}, catching up: the replica does not equal the source at any LSN; rows up to "
            f"{sink['applied_lsn']}, lag {_bytes(sink['unapplied_bytes'])}"
        )
    lag = [_bytes(sink["lag_bytes"])] if sink["lag_bytes"] is not None else []
    lag.append(_seconds(sink["lag_seconds"]))
    return f"{state}, cut {sink['cut_lsn']}, lag {' and '.join(lag)}"


def _tables(document: Document) -> Sequence[Mapping[str, Any]]:
    tables: Sequence[Mapping[str, Any]] = (document["sink"] or {}).get("tables", [])
    return tables


def _verdict(document: Document) -> str:
    if not document["healthy"]:
        return f"{document['name']} is not healthy"
    states = [row["state"] for row in _tables(document) if row["state"] != "exact"]
    counts = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))
    return f"{document['name']} is healthy" + (f"; replica tables that are not exact yet: {counts}" if states else "")


def _seconds(seconds: float | None) -> str:
    return "unknown time" if seconds is None else f"{seconds:,.1f} s"


def _bytes(count: int | None) -> str:
    return "unknown bytes" if count is None else size(count)
