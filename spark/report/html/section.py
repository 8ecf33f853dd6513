"""Shows one table of the report: its verdict, what differs and where, and how it was compared."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.base.words import counted
from cdc.spark.report.html.cells import pill
from cdc.spark.report.html.charts import class_strip, columns_chart, ranking
from cdc.spark.report.html.facts import facts_block, pairs
from cdc.spark.report.html.markup import Markup, element
from cdc.spark.report.html.samples import columns_block, samples_block
from cdc.spark.report.model import TableReport
from cdc.spark.report.sides import SideComparison, comparisons
from cdc.spark.report.values import shortened


def table_section(table: TableReport, anchor: str, unfolded: bool) -> Markup:
    """Builds the section of one table, which can be folded."""
    sides = comparisons(table)
    differing = sum(side.differences for side in sides)
    said = counted(differing, "differing key") if differing else counted(table.counts.source_rows, "row")
    return element(
        "details",
        element("summary", pill(table.verdict), element("h2", table.table), element("small", said)),
        element(
            "div",
            _not_verified(table) if table.verdict == "not_verified" else None,
            element("div", [_side(side) for side in sides], cls="sides") if _judged(table, sides) else None,
            _causes_and_places(table),
            columns_block(table),
            samples_block(table),
            _repair(table),
            facts_block(table),
            cls="inside",
        ),
        id=anchor,
        cls=f"table {table.verdict}",
        open=unfolded,
        data_verdict=table.verdict,
        data_name=table.table,
    )


def _judged(table: TableReport, sides: Sequence[SideComparison]) -> bool:
    return table.verdict != "not_verified" or any(side.keys for side in sides)


def _not_verified(table: TableReport) -> Markup:
    return element(
        "div",
        element("p", element("b", "Why: "), shortened(table.reason) or "no reason was recorded"),
        element("p", element("b", "What to do: "), table.remedy) if table.remedy else None,
        cls="why",
    )


def _side(side: SideComparison) -> Markup:
    title = "Source and topic" if side.side == "topic" else f"Topic and {side.name}"
    strip = class_strip(side.identical, side.classes, side.name) if side.keys else None
    return element(
        "div",
        element("header", element("h3", title), pill(side.verdict)),
        element("p", side.other, cls="mono note"),
        element("p", side.sentence, cls="sentence") if side.verdict != "not_verified" else None,
        strip,
        cls="box",
    )


def _causes_and_places(table: TableReport) -> Markup | None:
    places = table.histograms
    charts = [
        columns_chart("Commit time", "of the differing keys' latest records", places.by_commit_time),
        columns_chart("Kafka partition", "of the differing keys", places.by_partition),
        columns_chart("Key bucket", "hash of the key", places.by_bucket),
    ]
    drawn = [chart for chart in charts if chart]
    causes = None
    if table.causes:
        causes = element("section", element("h3", "Likely causes"), element("div", ranking(table.causes), cls="box"))
    where = (
        element("section", element("h3", "Where they gather"), element("div", drawn, cls="charts")) if drawn else None
    )
    return element("div", causes, where) if causes or where else None


def _repair(table: TableReport) -> Markup | None:
    repair = table.repair
    if repair is None:
        return None
    left = repair.still_different
    return element(
        "section",
        element("h3", "Repair"),
        element(
            "div",
            element(
                "p",
                f"{counted(repair.keys, 'key')} handed to the bridge; a second comparison found ",
                element("b", f"{repair.verified:,} repaired" + (f" and {left:,} still different" if left else "")),
                ".",
            ),
            pairs(
                [
                    ("rows published", f"{repair.rows:,}"),
                    ("tombstones published", f"{repair.tombstones:,}"),
                    ("changed meanwhile", f"{repair.touched:,}"),
                ]
            ),
            cls="box",
        ),
    )
