"""The answer of ``cdc status`` as plain values, and the problems in it that need attention. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from cdc.base.errors import remedy_apart
from cdc.base.lsn import LSN
from cdc.base.waits import LONG_S
from cdc.bridge.backfill.intake import NOT_CAPTURED
from cdc.bridge.backfill.pace import average_rate, seconds_left, share
from cdc.bridge.source.retention import Retention, dangers
from cdc.contract.record import BackfillProgress, Progress
from cdc.contract.slot_state import SlotState
from cdc.contract.table_states import MEANINGS, TableState
from cdc.ops.status.parts import SourceStatus, Status
from cdc.ops.status.standing import Standing, bridge_standing, sink_standing, view_standing
from cdc.sink.replica import SinkStatus, TableStatus

Document: TypeAlias = dict[str, Any]

DOWN: Final = 4
"""Exit code: a part does not answer or does not run. The ``…Unavailable`` errors have the same code."""

SICK: Final = 3
"""Exit code: all parts answer, but one needs the operator. The ``…Refused`` errors have the same code."""


_SECTIONS: Final[Mapping[str, str]] = {"source": "source", "topics": "kafka", "sink": "sink"}


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """Something that needs attention, and what to do about it; ``exit_code`` is ``DOWN`` or ``SICK``."""

    part: str
    text: str
    remedy: str
    exit_code: int


def problems(status: Status) -> list[StatusProblem]:
    """Returns all problems, part by part."""
    found = []
    for name, part in (("source", status.source), ("topics", status.topics), ("sink", status.sink)):
        if part is not None and part.error is not None:
            remedy = part.error.remedy or (
                f"check that the server is up, and that section {_SECTIONS[name]} of the configuration is right"
            )
            found.append(StatusProblem(name, part.error.message, remedy, DOWN))
    bridge = bridge_standing(status)
    if (source := status.source.answer) is not None:
        found += _slot_problems(status.slot_name, source, bridge)
    if status.topics.error is None and status.topics.answer is None:
        found.append(StatusProblem("topics", "nothing is published yet", "start the bridge: cdc run", DOWN))
    for backfill in status.backfills:
        found += _backfill_problems(backfill)
    if status.topics.answer is not None:
        found += [_aside(table, keys) for table, keys in status.topics.answer.quarantined]
    found += _standing_problems("bridge", bridge)
    if status.sink is not None:
        found += _standing_problems("sink", sink_standing(status))
        if (sink := status.sink.answer) is not None:
            found += _troubled_tables(sink)
    found += _standing_problems("view", view_standing(status))
    return found


def _aside(table: str, keys: int) -> StatusProblem:
    text = f"the topic of {table} is whole except {keys:,}: the rows of so many keys cannot be carried"
    remedy = "see which, and why: cdc quarantine list; then correct them in the source"
    return StatusProblem("topics", text, remedy, SICK)


def _standing_problems(part: str, standing: Standing) -> list[StatusProblem]:
    code = SICK if standing.state == "blocked" else DOWN
    return [StatusProblem(part, text, remedy, code) for text, remedy in standing.reasons]


def _slot_problems(name: str, source: SourceStatus, bridge: Standing) -> list[StatusProblem]:
    slot = source.slot
    if slot is None:
        if bridge.reasons:
            return []  # a bridge is running, and says why it has not created the slot
        remedy = "start the bridge, which creates it: cdc run"
        return [StatusProblem("source", f"there is no slot {name}", remedy, DOWN)]
    if slot.lost:
        why = slot.invalidation_reason or slot.wal_status
        return [StatusProblem("source", f"slot {name} is lost ({why}): changes are missing", "see cdc check", SICK)]
    found = []
    if not slot.active and not bridge.reasons:
        found.append(StatusProblem("source", f"no bridge reads slot {name}", "start the bridge: cdc run", DOWN))
    found += [
        StatusProblem("source", f"{each.reason}; it is not captured", each.remedy, SICK)
        for each in source.left_out
        if each.is_named
    ]
    retention = Retention(slot, source.limit_bytes, source.oldest, source.role)
    found += [StatusProblem("source", each.text, each.remedy, SICK) for each in dangers(retention)]
    return found


def _backfill_problems(backfill: BackfillProgress) -> list[StatusProblem]:
    if backfill.reason == NOT_CAPTURED:
        text = f"table {backfill.table} is no longer captured: its topic and its replica table miss changes"
        remedy = f"capture it again, then: cdc backfill {shlex.quote(backfill.table)} --sweep"
        return [StatusProblem("topics", text, remedy, SICK)]
    if backfill.state == "failed":
        why, remedy = remedy_apart(backfill.reason)
        again = _again(backfill)
        text = f"the backfill of {backfill.table} failed: {why}"
        return [StatusProblem("topics", text, f"{remedy}\nthen: {again}" if remedy else again, SICK)]
    if not backfill.whole and not backfill.is_open:
        text = f"the topic of {backfill.table} does not hold every row: its backfill was {backfill.state}"
        return [StatusProblem("topics", text, _again(backfill), SICK)]
    # A first load is not a problem, but a gap is: rows that the topic had may be missing, or have outdated keys.
    if not backfill.whole and backfill.cause == "gap":
        text = f"the topic of {backfill.table} does not hold every row: it is being published again after a gap"
        return [StatusProblem("topics", text, "wait for its backfill, whose progress cdc status shows", SICK)]
    return []


def _again(backfill: BackfillProgress) -> str:
    """Returns the command that repeats a backfill, with its sweep: else deleted rows would stay in the topic."""
    command = f"cdc backfill {shlex.quote(backfill.table)}"
    if backfill.sweep:
        return f"{command} --sweep"
    # The condition is only enough if the topic holds all other rows.
    return f"{command} --where {shlex.quote(backfill.where)}" if backfill.where and backfill.whole else command


def _troubled_tables(sink: SinkStatus) -> list[StatusProblem]:
    found = []
    for table in sink.tables:
        if table.refused:
            text = f"table {table.replica_table} lacks {table.refused:,} rows that it refused"
            remedy = "see which, and why: cdc quarantine list; then correct the table, or the rows in the source"
            found.append(StatusProblem("sink", text, remedy, SICK))
        if table.state == TableState.STOPPED:
            reason, remedy = remedy_apart(table.reason)
            remedy = remedy or "fix what the reason names, then restart the sink"
            found.append(StatusProblem("sink", f"table {table.replica_table} is stopped: {reason}", remedy, SICK))
    return found


def as_document(status: Status, *, now_us: int) -> Document:
    """Returns the status as plain values.

    Args:
        status: the answers of all parts.
        now_us: this machine's clock in µs since 1970; used if the source's clock cannot be read.
    """
    source, published = status.source.answer, status.topics.answer
    clock_us = source.now_us if source is not None else now_us
    trouble = problems(status)
    document: Document = {
        "name": status.name,
        "healthy": not trouble,
        "problems": [{"part": each.part, "text": each.text, "remedy": each.remedy} for each in trouble],
        "source": {"reachable": status.source.reachable, **_source(source)},
        "topics": {"reachable": status.topics.reachable, **_topics(published, source, clock_us)},
        "backfills": [_backfill(each) for each in status.backfills],
        "bridge": _standing(bridge_standing(status)),
        "sink": None,
        "view": _standing(view_standing(status)),
    }
    if status.sink is not None:
        backfills = {each.topic: each for each in status.backfills}
        standing = sink_standing(status)
        document["sink"] = {
            "reachable": status.sink.reachable,
            **_standing(standing),
            **_sink(status.sink.answer, standing, published, backfills, clock_us),
        }
    return document


def _standing(standing: Standing) -> Document:
    """Returns ``state`` and, if something is wrong, ``why`` and for how long."""
    why = "; ".join(text for text, _ in standing.reasons)
    return {"state": standing.state, "why": why or None, "state_seconds": standing.since_s}


def _source(source: SourceStatus | None) -> Document:
    if source is None:
        return {}
    slot = source.slot
    left_out = [{"table": each.table, "reason": each.reason, "remedy": each.remedy} for each in source.left_out]
    if slot is None:
        return {"wal_lsn": str(source.wal_lsn), "left_out": left_out, "slot": None}
    return {
        "wal_lsn": str(source.wal_lsn),
        "left_out": left_out,
        "slot": {
            "name": slot.name,
            "active": slot.active,
            "active_pid": slot.active_pid,
            "waiting_bridges": source.waiting,
            "confirmed_flush_lsn": _lsn(slot.confirmed_flush_lsn),
            "lag_bytes": _slot_lag_bytes(slot, source),
            "lag_seconds": _slot_lag_s(slot, source),
            "wal_status": slot.wal_status,
            "retained_bytes": slot.retained_bytes,
            "safe_wal_size": slot.safe_wal_size,
            "max_slot_wal_keep_size": source.limit_bytes,
            "invalidation_reason": slot.invalidation_reason,
        },
    }


def _slot_lag_bytes(slot: SlotState, source: SourceStatus) -> int | None:
    """Returns the distance of the two LSNs that the document shows: slot and WAL were asked one after the other."""
    return None if slot.confirmed_flush_lsn is None else max(source.wal_lsn - slot.confirmed_flush_lsn, 0)


def _slot_lag_s(slot: SlotState, source: SourceStatus) -> float | None:
    """Returns how many seconds the slot is behind; None without a reader, when only the lag in bytes is known.

    PostgreSQL measures this when the reader confirms something. For a silent reader it reports 0, so its silence
    counts instead.
    """
    if _slot_lag_bytes(slot, source) == 0:
        return 0.0
    if not slot.active:
        return None
    silent_s = source.heard_s if source.heard_s is not None and source.heard_s >= LONG_S else 0.0
    return max(source.confirm_lag_s or 0.0, silent_s)


def _topics(published: Progress | None, source: SourceStatus | None, clock_us: int) -> Document:
    if published is None:
        return {}
    return {
        "published_lsn": str(published.lsn),
        "partial": published.partial is not None,
        "quarantined": dict(published.quarantined),
        "lag_bytes": max(source.wal_lsn - published.lsn, 0) if source is not None else None,
        "commit_time": _time(published.commit_ts),
        "age_seconds": _age_s(published.commit_ts, clock_us),
    }


def _backfill(backfill: BackfillProgress) -> Document:
    rate = average_rate(backfill) if backfill.state == "running" else None
    return {
        "table": backfill.table,
        "state": backfill.state,
        "cause": backfill.cause,
        "whole": backfill.whole,
        "rows": backfill.rows,
        "estimated_rows": backfill.estimated_rows,
        "done": round(share(backfill), 4),
        "rows_per_second": rate,
        "seconds_left": seconds_left(backfill, rate),
        "reason": backfill.reason or None,
        "updated": _time(backfill.updated_at),
    }


def _sink(
    sink: SinkStatus | None,
    standing: Standing,
    published: Progress | None,
    backfills: Mapping[str, BackfillProgress],
    clock_us: int,
) -> Document:
    """Returns the sink's part. ``exact``: the replica shows one moment of the source.

    A replica that is not exact yet is not a problem, but worth an alert.
    """
    if sink is None:
        return {}
    left_out = {each.table for each in sink.blockers if each.is_left_out}
    lag_bytes = lag_seconds = None
    unapplied_bytes = None
    if sink.applied_lsn is not None and published is not None:
        unapplied_bytes = max(published.lsn - sink.applied_lsn, 0)
    if sink.lsn is not None and published is not None:
        lag_bytes = max(published.lsn - sink.lsn, 0)
        lag_seconds = _sink_lag_s(sink, published, clock_us)
    return {
        "running": standing.state != "down",
        "exact": sink.lsn is not None and all(each.state == TableState.EXACT for each in sink.tables),
        "cut_lsn": _lsn(sink.lsn),
        "applied_lsn": _lsn(sink.applied_lsn),
        "commit_time": _time(sink.commit_ts),
        "lag_bytes": lag_bytes,
        "lag_seconds": lag_seconds,
        "unapplied_bytes": unapplied_bytes,
        "tables": [
            {
                "topic": each.topic,
                "replica_table": each.replica_table,
                "state": each.state,
                "rows_applied": each.rows_applied,
                "refused": each.refused,
                "under_way": (
                    "it is left out until a lock in the replica is released"
                    if each.replica_table in left_out
                    else _under_way(each, backfills.get(each.topic))
                ),
                "reason": each.reason or None,
            }
            for each in sink.tables
        ],
    }


def _sink_lag_s(sink: SinkStatus, published: Progress, clock_us: int) -> float | None:
    """Returns the age of the oldest change that the topics hold and the replica lacks; 0 if it lacks nothing.

    The exact age is unknown, so this is an upper limit. The change was committed after the replica's newest commit, and
    published after the moment when the replica last held everything. If the topics hold no newer commit, only the
    position moved on, at the earliest after the last cut.
    """
    assert sink.lsn is not None
    if published.lsn <= sink.lsn:
        return 0.0
    if published.commit_ts <= sink.commit_ts:
        return sink.applied_s
    ages = [each for each in (_age_s(sink.commit_ts, clock_us), sink.level_s) if each is not None]
    return min(ages, default=None)


def _under_way(table: TableStatus, backfill: BackfillProgress | None) -> str | None:
    """Returns what is under way to make a table exact; None if it is exact, or if the operator must act."""
    match table.state:
        case TableState.LOADING if backfill is not None:
            return f"its backfill is {backfill.state}, {share(backfill):.0%} of it is published"
        case TableState.LOADING | TableState.CATCHING_UP as state:
            return MEANINGS[TableState(state)]
        case TableState.REBUILDING:
            return f"it is replayed from its topic: {table.reason}" if table.reason else "it is replayed from its topic"
        case TableState.EXCEPTED:
            return MEANINGS[TableState.EXCEPTED]
        case _:
            return None


def _lsn(lsn: LSN | None) -> str | None:
    return None if lsn is None else str(lsn)


def _time(commit_ts: int) -> str | None:
    return datetime.fromtimestamp(commit_ts / 1e6, UTC).isoformat() if commit_ts else None


def _age_s(then_us: int, now_us: int) -> float | None:
    return max(now_us - then_us, 0) / 1e6 if then_us else None
