"""The tables of a view, and what answers about each of them are worth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cdc.base.lsn import LSN
from cdc.views.query.answer import Answer, as_json
from cdc.views.query.desk import Desk, StoreTables, ViewRequest
from cdc.views.query.readiness import is_ready, loading, missing, state_of
from cdc.views.table.facts import Facts, TableFacts


async def all_tables(desk: Desk, asked: ViewRequest) -> Answer:
    """Lists the tables that the caller may read, by name."""
    tables: list[Mapping[str, Any]] = []
    views: list[Mapping[str, Any] | None] = []
    for part in desk.parts:
        facts = await desk.quick(part.view.facts)
        views.append(_view(facts))
        for name in sorted(facts.tables):
            if asked.access.may_read(name):
                tables.append(_told(facts, facts.tables[name], await _count(desk, part, facts.tables[name])))
    return as_json({"view": views[0], "tables": tables})


async def one_table(desk: Desk, asked: ViewRequest, name: str) -> Answer:
    """Describes one table, loaded or not.

    Raises:
        Problem: ``not-allowed`` or ``unknown-table``.
    """
    asked.access.check(name)
    part = desk.part(name)
    facts = await desk.quick(part.view.facts)
    if (table := facts.tables.get(name)) is None:
        raise missing(await desk.facts(), name, asked.access, time.time())
    return as_json(_told(facts, table, await _count(desk, part, table)))


async def readiness(desk: Desk, waits: Sequence[Mapping[str, object]]) -> Answer:
    """Tells whether every table can answer questions. Names no table, because everybody may ask.

    Args:
        desk: the desk of the process.
        waits: what the feed is waiting for. The view answers from the rows that it has meanwhile.
    """
    facts = await desk.facts()
    loads = [each for each in facts if not is_ready(each)]
    said: dict[str, object] = {
        "ready": not loads,
        "state": state_of(facts, time.time()),
        "tables": sum(len(each.tables) for each in facts),
    }
    if waits:
        said["waits"] = waits
    if loads:
        said |= loading(loads[0], time.time())
    return as_json(said, status=503 if loads else 200)


async def _count(desk: Desk, part: StoreTables, table: TableFacts) -> int:
    if not table.is_shown:
        return 0
    number, _ = await desk.quick(partial(part.view.count, table.name))
    return number


def _view(facts: Facts) -> Mapping[str, Any] | None:
    view = facts.view
    if view is None:
        return None
    return {
        "name": view.name,
        "lsn": str(LSN(view.lsn)) if view.lsn else None,
        "source": view.source or None,
        "age_s": round(max(time.time() - view.caught_up_at, 0), 3) if view.caught_up_at else None,
        "version": facts.version,
    }


def _told(facts: Facts, table: TableFacts, count: int) -> Mapping[str, Any]:
    state, reason = facts.standing(table, time.time())
    said: dict[str, Any] = {
        "name": table.name,
        "topic": table.topic,
        "state": state,
        "reason": reason or None,
        "generation": table.generation,
        "lsn": str(lsn) if (lsn := facts.lsn_of(table)) else None,
        "rows": count,
        "unreadable": table.unreadable,
        "key": [{"name": column.name, "type": column.sql_type} for column in table.key] or table.key_kind,
        "indexes": [list(columns) for columns in table.indexes],
    }
    if table.state == "loading":
        said["loading"] = loading(facts, time.time())
    return said
