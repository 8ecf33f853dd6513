"""Whether tables can answer questions, and how far the first load is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

from cdc.base.web.problem import Problem
from cdc.base.web.tokens import Access
from cdc.views.table.facts import Facts

RETRY_LOAD: tuple[bytes, bytes] = (b"retry-after", b"5")
_LONGEST_LIST = 50


def missing(facts: Sequence[Facts], name: str, access: Access, now: float) -> Problem:
    """Why a table cannot be read.

    Args:
        facts: the facts of each store.
        name: the name in the request.
        access: what the caller may read; a table of that name is allowed.
        now: seconds since 1970.

    Returns:
        ``unknown-table`` or ``not-ready``.
    """
    for each in facts:
        if name in each.tables:
            return not_ready(each, now, f"Table {name} is being loaded for the first time.")
    if empty := [each for each in facts if not has_begun(each)]:
        return not_ready(empty[0], now, "The view holds nothing yet.")
    visible = sorted(table for each in facts for table in each.tables if access.may_read(table))
    more = "" if len(visible) <= _LONGEST_LIST else f" and {len(visible) - _LONGEST_LIST} more"
    return Problem(
        "unknown-table",
        f"The view has no table {name[:200]!r}. It has {', '.join(visible[:_LONGEST_LIST]) or 'none'}{more}. "
        "view.tables in the configuration chooses the tables.",
        tables=visible[:_LONGEST_LIST],
    )


def not_ready(facts: Facts, now: float, sentence: str) -> Problem:
    """The answer while there are no rows: how many were read, how quickly, and how long the load may still take."""
    said = loading(facts, now)
    eta = said.get("eta_s")
    more = "" if eta is None else f" About {eta:.0f} s are left."
    return Problem("not-ready", sentence + more + " Try again later.", [RETRY_LOAD], **said)


def loading(facts: Facts, now: float) -> dict[str, float | int]:
    """The rows read since the load began, rows per second, and the seconds left at that rate."""
    view = facts.view
    if view is None or not view.began_at:
        return {"rows": 0}
    elapsed = max(now - view.began_at, 0.001)
    said: dict[str, float | int] = {"rows": view.rows, "rows_per_second": round(view.rows / elapsed, 1)}
    # New partitions of a topic have targets before the next cut brings their offsets: nothing of them is read yet.
    ends = [
        (end, at)
        for topic, to in view.targets.items()
        for end, at in zip(to, chain(facts.offsets.get(topic, ()), repeat(0)), strict=False)
    ]
    left = sum(max(end - at, 0) for end, at in ends)
    done = sum(min(end, at) for end, at in ends)
    if done:
        said["eta_s"] = round(left * elapsed / done, 1)
    return said


def state_of(facts: Sequence[Facts], now: float) -> str:
    """One word for all tables: the worst state that any of them has."""
    states = {each.standing(table, now)[0] for each in facts for table in each.tables.values()}
    states |= {"loading" for each in facts if not has_begun(each)}
    return next((state for state in ("loading", "suspect", "degraded", "behind") if state in states), "exact")


def is_ready(facts: Facts) -> bool:
    """Whether every table of a store can answer, or waits only for rows that its topic did not hold at the start."""
    return has_begun(facts) and all(map(facts.is_read, facts.tables.values()))


def has_begun(facts: Facts) -> bool:
    """Whether the feed has committed anything. Before that, nobody knows which tables there are."""
    view = facts.view
    return view is not None and bool(view.source if view.feed == "deployment" else facts.tables)
