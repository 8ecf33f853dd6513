"""One row per table, which joins its topic, backfill, replica table and view. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cdc.ops.dashboard.numbers import Numbers
from cdc.ops.dashboard.rates import Rates

LONGEST_LIST: Final = 400
"""How many tables are sent with each look; tables that need attention come first, then those with most changes."""

_SETTLED: Final = frozenset({"", "exact", "done", "whole"})


def tables(
    status: Mapping[str, Any],
    numbers: Numbers,
    rates: Rates,
    topic_of: Callable[[str], str],
) -> dict[str, Any]:
    """Returns the rows, and how many tables there are.

    Args:
        status: what ``cdc status --json`` prints.
        numbers: the numbers of all processes together.
        rates: turns the counters in both into rates.
        topic_of: returns the topic of ``namespace.table``.
    """
    rows: dict[str, dict[str, Any]] = {}

    def row(table: str, topic: str) -> dict[str, Any]:
        return rows.setdefault(topic, {"table": table, "topic": topic})

    for each in status["backfills"]:
        row(each["table"], topic_of(each["table"])).update(backfill=each, state=_topic_state(each))
    for what in ("changes", "rows"):
        counted, speeds = numbers.by_table.get(what, {}), rates.of_each(what, numbers.by_table.get(what, {}))
        for table, count in counted.items():
            row(table, topic_of(table)).update({what: count, f"{what}_s": speeds.get(table)})
    for table, state in numbers.states.items():
        row(table, topic_of(table))["view"] = state
    mirrored = (status["sink"] or {}).get("tables", ())
    speeds = rates.of_each("replica", {each["topic"]: each["rows_applied"] for each in mirrored})
    for each in mirrored:
        row(each["replica_table"], each["topic"])["replica"] = {**each, "rows_applied_s": speeds.get(each["topic"])}
    shown = sorted(rows.values(), key=_interest)
    return {"rows": shown[:LONGEST_LIST], "count": len(shown)}


def _topic_state(backfill: Mapping[str, Any]) -> str:
    """Returns whether the topic holds every row of its table: whole, loading or incomplete."""
    if backfill["state"] in ("waiting", "running", "paused"):
        return "loading" if not backfill["whole"] else "whole"
    return "whole" if backfill["whole"] else "incomplete"


def _interest(row: Mapping[str, Any]) -> tuple[bool, float, str]:
    states = {row.get("state", ""), row.get("view", ""), row.get("replica", {}).get("state", "")}
    is_settled = states <= _SETTLED and row.get("backfill", {}).get("state", "done") == "done"
    return is_settled, -(row.get("changes_s") or 0.0), row["table"]
