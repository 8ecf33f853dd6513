"""Builds the whole page: first the verdict, then numbers, then tables, then the run itself."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from cdc.base.words import counted
from cdc.spark.report.html.cells import pill, sign
from cdc.spark.report.html.charts import timeline
from cdc.spark.report.html.facts import pairs
from cdc.spark.report.html.markup import Markup, element, trusted
from cdc.spark.report.html.section import table_section
from cdc.spark.report.model import Report, TableReport
from cdc.spark.report.sides import comparisons, copy_of
from cdc.spark.report.words import SEES, VERDICT, duration, elapsed_s, headline, lag, limits, moment

# Tables that need attention are unfolded, but not more than this: a hundred would bury the overview.
_UNFOLDED_TABLES: Final = 5
_COLOUR: Final = {"identical": "#0b7a4b", "different": "#b3261e", "not_verified": "#8a5a00"}


def as_html(report: Report) -> str:
    """Returns one self-contained HTML document, readable without JavaScript or network, in light and dark mode."""
    style, script = _template("page.css"), _template("page.js")
    body = element(
        "body",
        element("main", _banner(report), _tiles(report), _sight(report), _overview(report), _sections(report)),
        _footer(report),
        element("script", trusted(script)),
    )
    return "<!doctype html>\n" + element("html", _head(report, style, script), body, lang="en") + "\n"


def _template(name: str) -> str:
    return files("cdc.spark.report").joinpath("templates", name).read_text(encoding="utf-8")


def _head(report: Report, style: str, script: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The page shows values of rows. Whatever they hold, the page must fetch nothing and run no other script.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    icon = (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'>"
        f"<rect width='32' height='32' rx='8' fill='{_COLOUR[report.verdict]}'/>"
        "<text x='16' y='23' font-size='20' font-family='sans-serif' text-anchor='middle' fill='white'>"
        f"{sign(report.verdict)}</text></svg>"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="color-scheme", content="light dark"),
        element("meta", name_="referrer", content="no-referrer"),
        element("title", f"{VERDICT[report.verdict]}: {report.source.database}, {moment(report.started_at)}"),
        element("link", rel="icon", href=f"data:image/svg+xml,{quote(icon)}"),
        element("style", trusted(style)),
    )


def _banner(report: Report) -> Markup:
    source = report.source
    where = element("span", f"{source.database} on {source.host}:{source.port}", cls="mono")
    chips = [f"exit code {report.exit_code}", f"PostgreSQL {source.server_version}", f"Kafka {report.kafka}"]
    chips += ["values hidden"] if report.redacted else []
    return element(
        "header",
        element(
            "div",
            element("span", "Reconciliation report"),
            element("time", moment(report.started_at), datetime=report.started_at),
            cls="top",
        ),
        element(
            "div",
            element("span", sign(report.verdict), cls="sign", aria_hidden="true"),
            element(
                "div",
                element("p", VERDICT[report.verdict], cls="verdict"),
                element("h1", headline(report)),
                element("p", where, " compared with its topics, key by key, each table at one snapshot."),
            ),
            cls="say",
        ),
        element("ul", [element("li", chip) for chip in chips], cls="chips"),
        cls=f"banner {report.verdict}",
    )


def _tiles(report: Report) -> Markup:
    counts = [table.counts for table in report.tables]
    sides = [side for table in report.tables for side in comparisons(table)]
    differing = sum(side.differences for side in sides)
    unjudged = sum(sum(side.classes.values()) - side.differences for side in sides)
    records = sum(each.records for each in counts)
    seconds = elapsed_s(report)
    rate = f"{records / seconds:,.0f} records/s" if seconds > 0 and records else "start to end"
    copies = [copy_of(table) for table in report.tables if table.replica is not None]
    tombstones = counted(sum(each.tombstones for each in counts), "tombstone")
    return element(
        "div",
        _tile(
            "Differing keys",
            differing,
            f"in topics and {copies[0]}" if copies else "source and topic",
            bool(differing) * "bad",
        ),
        _tile("Identical keys", sum(each.identical for each in counts), f"in {counted(len(counts), 'table')}", ""),
        _tile("Source rows", sum(each.source_rows for each in counts), "at the snapshot", ""),
        _tile("Records read", records, tombstones, ""),
        _tile("Not judged", unjudged, "in flight", bool(unjudged) * "warn"),
        element(
            "div",
            element("span", "Time"),
            element("b", duration(seconds)),
            element("small", rate),
            cls="tile",
        ),
        cls="tiles",
    )


def _tile(name: str, number: int, note: str, mood: str) -> Markup:
    return element(
        "div",
        element("span", name),
        element("b", f"{number:,}"),
        element("small", note),
        cls=f"tile {mood}".rstrip(),
    )


def _sight(report: Report) -> Markup:
    return element(
        "details",
        element("summary", "What this report can and cannot see"),
        element(
            "div",
            element("div", element("h3", "It sees"), element("ul", [element("li", each) for each in SEES])),
            element(
                "div", element("h3", "It does not see"), element("ul", [element("li", each) for each in limits(report)])
            ),
            cls="sight",
        ),
        cls="fold box",
    )


def _overview(report: Report) -> Markup | None:
    if len(report.tables) < 2:
        return None
    furthest = max((table.lag_s or 0 for table in report.tables), default=0)
    rows = [_overview_row(table, f"t{index}", furthest) for index, table in enumerate(report.tables)]
    names = ("verdict", "table", "rows", "differing", "not judged", "lag at start")
    return element(
        "section",
        element("h2", "Tables"),
        element(
            "form",
            element("input", type="search", placeholder="Find a table", aria_label="Find a table", id="find"),
            element("label", element("input", type="checkbox", id="bad"), " only those that need attention"),
            cls="filter",
            hidden=True,
        ),
        element(
            "table",
            element("thead", element("tr", [element("th", name, scope="col") for name in names])),
            element("tbody", rows),
            cls="overview box",
        ),
    )


def _overview_row(table: TableReport, anchor: str, furthest: float) -> Markup:
    sides = comparisons(table)
    differing = sum(side.differences for side in sides)
    unjudged = sum(sum(side.classes.values()) for side in sides) - differing
    width = 100 * (table.lag_s or 0) / furthest if furthest else 0
    lags = [
        element("span", lag(table) or "unknown"),
        element("span", element("i", style=f"width:{width:.1f}%"), cls="track", aria_hidden="true"),
    ]
    return element(
        "tr",
        element("td", pill(table.verdict)),
        element("th", element("a", table.table, href=f"#{anchor}"), scope="row"),
        element("td", f"{table.counts.source_rows:,}", data_l="rows"),
        element("td", f"{differing:,}", data_l="differing", cls="bad" if differing else None),
        element("td", f"{unjudged:,}", data_l="not judged"),
        element("td", lags, data_l="lag at start", cls="lag"),
        data_verdict=table.verdict,
        data_name=table.table,
    )


def _sections(report: Report) -> Markup:
    attention = [table.table for table in report.tables if table.verdict != "identical"][:_UNFOLDED_TABLES]
    single = len(report.tables) == 1
    return element(
        "div",
        [
            table_section(table, f"t{index}", single or table.table in attention)
            for index, table in enumerate(report.tables)
        ],
        cls="tables",
    )


def _footer(report: Report) -> Markup:
    engine, source = report.engine, report.source
    return element(
        "footer",
        element("h2", "The run"),
        timeline(report.stages),
        pairs(
            [
                ("run", report.run),
                ("started", moment(report.started_at)),
                ("ended", moment(report.ended_at)),
                ("source", f"{source.database} on {source.host}:{source.port}, PostgreSQL {source.server_version}"),
                ("system identifier", source.system_identifier),
                ("Kafka", f"{report.kafka}, {report.isolation_level}"),
                ("tool", f"cdc {engine.tool_version}, report schema {report.schema_version}"),
                ("engine", f"Spark {engine.spark_version} on {engine.master}, connector {engine.connector_version}"),
            ]
        ),
    )
