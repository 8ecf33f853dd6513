"""Shows a table's differing columns and keys: examples, both rows side by side, and the topic's record."""

from __future__ import annotations

from collections import Counter
from typing import Final

from cdc.base.words import counted
from cdc.spark.report.html.cells import class_tag, pair, value
from cdc.spark.report.html.markup import Markup, element
from cdc.spark.report.model import ColumnDifferences, Sample, TableReport
from cdc.spark.report.sides import copy_of
from cdc.spark.report.values import shortened
from cdc.spark.report.words import OPERATION, class_word, moment

# A row with at most this many equal columns is shown whole; if there are more, they are folded away.
_EQUAL_SHOWN: Final = 3
_OPEN_SAMPLES: Final = 4


def columns_block(table: TableReport) -> Markup | None:
    """Shows for each column how often it differs, how, and example pairs."""
    if not table.columns:
        return None
    top = max(column.mismatches for column in table.columns)
    return element(
        "section",
        element("h3", "Columns that differ"),
        element("div", [_column(column, top) for column in table.columns], cls="columns"),
    )


def samples_block(table: TableReport) -> Markup | None:
    """Shows the sampled keys; the first few are unfolded."""
    if not table.samples:
        return None
    many = Counter(sample.difference for sample in table.samples)
    copy = copy_of(table)
    known = ", ".join(f"{number} {class_word(kind, copy)}" for kind, number in many.items())
    cards = [_card(sample, copy, index < _OPEN_SAMPLES) for index, sample in enumerate(table.samples)]
    return element(
        "section", element("h3", "Sampled keys ", element("small", known)), element("div", cards, cls="samples")
    )


def _column(column: ColumnDifferences, top: int) -> Markup:
    facts = [counted(column.mismatches, "key")]
    if column.null_or_value:
        facts.append(f"{column.null_or_value:,} NULL on one side")
    if column.largest_difference is not None:
        facts.append(f"largest difference {column.largest_difference}")
    rows = [
        element("tr", element("td", left, data_l="source"), element("td", right, data_l="other"))
        for left, right in (pair(example.source, example.other) for example in column.examples)
    ]
    examples = element(
        "table",
        element("thead", element("tr", element("th", "source"), element("th", "topic or replica"))),
        element("tbody", rows),
        cls="two",
    )
    width = f"width:{max(100 * column.mismatches / top, 1.5) if top else 0:.2f}%"
    return element(
        "div",
        element("header", element("b", column.name, cls="mono"), element("small", column.sql_type, cls="mono")),
        element("span", element("i", style=width), cls="track", aria_hidden="true"),
        element("p", ", ".join(facts), cls="note"),
        element("p", shortened(column.hint), cls="hint") if column.hint else None,
        element("div", examples, cls="scroll", tabindex="0") if rows else None,
        cls="column",
    )


def _card(sample: Sample, copy: str, unfolded: bool) -> Markup:
    return element(
        "details",
        element(
            "summary",
            class_tag(sample.difference, copy),
            element("code", value(sample.key), cls="key"),
            element("small", " / ".join(_sides(sample, copy))),
        ),
        element("p", element("b", "Likely cause: "), shortened(sample.cause), cls="hint") if sample.cause else None,
        _record(sample),
        _rows(sample, copy),
        cls="sample",
        open=unfolded,
    )


def _record(sample: Sample) -> Markup:
    facts = {
        "partition": sample.partition,
        "offset": sample.offset,
        "operation": None if sample.op is None else OPERATION.get(sample.op, sample.op),
        "LSN": sample.lsn,
        "change": None if sample.seq is None else f"#{sample.seq}",
        "xid": sample.xid,
        "committed": None if sample.commit_time is None else moment(sample.commit_time),
    }
    known = [
        element("div", element("dt", name), element("dd", str(fact)))
        for name, fact in facts.items()
        if fact is not None
    ]
    if not known:
        return element("p", "The topic holds no visible record for this key.", cls="note")
    return element("dl", known, cls="coords", aria_label="Latest visible record of the topic")


def _sides(sample: Sample, copy: str) -> tuple[str, str]:
    return ("source", "topic") if sample.side == "topic" else ("topic", copy)


def _rows(sample: Sample, copy: str) -> Markup | None:
    names = tuple(dict.fromkeys([*(sample.source or {}), *(sample.other or {})]))
    if not names:
        return None
    both = sample.source is not None and sample.other is not None
    equal = [name for name in names if name not in sample.differing] if both else []
    shown = names if len(equal) <= _EQUAL_SHOWN else tuple(name for name in names if name not in equal)
    folded = None
    if len(equal) > _EQUAL_SHOWN:
        folded = element(
            "details",
            element("summary", f"{counted(len(equal), 'equal column')}"),
            _grid(sample, copy, tuple(equal)),
            cls="more",
        )
    return element("div", _grid(sample, copy, shown) if shown else None, folded)


def _grid(sample: Sample, copy: str, names: tuple[str, ...]) -> Markup:
    left, right = _sides(sample, copy)
    sides = [(left, sample.source), (right, sample.other)]
    there = [(side, row) for side, row in sides if row is not None]
    head = element("tr", element("th", "column", scope="col"), [element("th", side, scope="col") for side, _ in there])
    body = []
    for name in names:
        differs = name in sample.differing and len(there) == 2
        cells = pair(*(row.get(name) for _, row in there)) if len(there) == 2 else (value(there[0][1].get(name)),)
        mark = element("i", "\N{NOT EQUAL TO}", title="differs", cls="ne") if differs else None
        body.append(
            element(
                "tr",
                element("th", mark, name, scope="row"),
                [element("td", cell, data_l=side) for cell, (side, _) in zip(cells, there, strict=True)],
                cls="differs" if differs else None,
            )
        )
    # A single row needs no column heads, and takes less room without.
    over = element("thead", head) if len(there) == 2 else element("caption", f"row of the {there[0][0]}")
    table = element("table", over, element("tbody", body), cls=f"rows w{len(there)}")
    return element("div", table, cls="scroll", tabindex="0")
