"""Shows how a table was compared, for whoever has to trust the verdict: position, scope, rounds, offsets, times."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.base.words import counted
from cdc.spark.report.html.charts import timeline
from cdc.spark.report.html.markup import Child, Markup, element
from cdc.spark.report.model import TableReport
from cdc.spark.report.sides import copy_of
from cdc.spark.report.words import duration, lag


def facts_block(table: TableReport) -> Markup:
    """Shows the facts in a folded block, because they do not depend on the verdict."""
    return element(
        "details",
        element("summary", "How it was compared"),
        pairs(_position(table)),
        _skipped(table),
        _grid(
            "Rounds",
            ("round", "snapshot", "LSN", "keys looked at", "in flight"),
            [(each.number, each.snapshot, each.lsn, f"{each.keys:,}", f"{each.in_flight:,}") for each in table.rounds],
        ),
        _grid(
            "Records that were read",
            ("partition", "from offset", "to offset", "records"),
            [(each.partition, f"{each.start:,}", f"{each.end:,}", f"{each.records:,}") for each in table.offsets],
        ),
        [element("h4", "Time"), timeline(table.stages)] if table.stages else None,
        cls="fold",
    )


def pairs(facts: Sequence[tuple[str, Child]]) -> Markup:
    """Shows names and values; the values are in monospace."""
    return element(
        "dl", [element("div", element("dt", name), element("dd", fact)) for name, fact in facts if fact], cls="facts"
    )


def _position(table: TableReport) -> list[tuple[str, Child]]:
    passes = "" if table.passes == 1 else f", {table.passes} passes: exact per pass"
    return [
        ("topic", table.topic),
        (copy_of(table), f"{table.replica.table} {table.replica.at}" if table.replica else None),
        ("snapshot", table.snapshot),
        ("LSN (H)", table.lsn),
        ("waited for the bridge", duration(table.fence_wait_s)),
        ("lag at start", lag(table) or "unknown"),
        ("mode", f"{table.mode}{passes}"),
        ("filter", table.where),
        ("key", ", ".join(table.key_columns)),
        ("columns compared", ", ".join(table.columns_compared)),
        ("rules", "; ".join(table.rules) or "none: values must be equal to the last character"),
        ("all differing keys", table.keys_path),
    ]


def _skipped(table: TableReport) -> Markup | None:
    if not table.columns_skipped:
        return None
    said = [element("li", element("code", each.name), f": {each.reason}") for each in table.columns_skipped]
    title = f"{counted(len(said), 'column')} not compared"
    return element("div", element("h4", title), element("ul", said))


def _grid(title: str, names: Sequence[str], rows: Sequence[Sequence[str | int]]) -> Markup | None:
    if not rows:
        return None
    head = element("tr", [element("th", name, scope="col") for name in names])
    body = [element("tr", [element("td", cell) for cell in row]) for row in rows]
    grid = element("table", element("thead", head), element("tbody", body), cls="grid")
    return element("div", element("h4", title), element("div", grid, cls="scroll", tabindex="0"))
