"""Draws charts as inline SVG and plain boxes. Each also says in words and numbers what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cdc.base.words import counted
from cdc.spark.report.html.markup import Markup, element
from cdc.spark.report.model import Bar, DifferenceClass, Stage
from cdc.spark.report.values import shortened
from cdc.spark.report.words import class_word, duration

# With more bars than this, a finger on a phone's screen could not pick one.
_MOST_BARS: Final = 48
_WIDTH: Final = 340
_HEIGHT: Final = 132
_FLOOR: Final = 108
_CEILING: Final = 18
_LETTER: Final = 6.2


def columns_chart(title: str, axis: str, bars: Sequence[Bar]) -> Markup:
    """Draws a histogram with one column per bar; returns nothing if there are no bars."""
    if not bars:
        return Markup()
    drawn = _merged(bars)
    peak = max(drawn, key=lambda bar: bar.count)
    place = shortened(peak.label)
    said = f"{title}: most in {place} ({peak.count:,}), {sum(bar.count for bar in bars):,} in all"
    picture = element(
        "svg",
        element("title", said),
        element("line", x1=0, x2=_WIDTH, y1=_FLOOR + 0.5, y2=_FLOOR + 0.5, cls="axis"),
        [_column(index, bar, len(drawn), peak) for index, bar in enumerate(drawn)],
        _labels(drawn),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=said,
    )
    peak_said = element("p", "most: ", element("b", place), f" ({counted(peak.count, 'key')})", cls="note")
    return element("figure", element("figcaption", title, element("small", axis)), picture, peak_said, cls="chart")


def class_strip(identical: int, classes: Mapping[DifferenceClass, int], copy: str = "replica") -> Markup:
    """Draws the classes of one comparison as rows of name, bar and number. The largest class has the full bar."""
    top = max(classes.values(), default=0)
    rows = [
        element(
            "li",
            element("span", element("i", cls=f"dot k-{kind}"), class_word(kind, copy), cls="name"),
            _track(number, top, f"k-{kind}"),
            element("b", f"{number:,}"),
            cls=None if number else "none",
        )
        for kind, number in classes.items()
    ]
    whole = identical + sum(classes.values())
    share = (_percent(identical, whole), element("span", f" of {counted(whole, 'key')}", cls="of"))
    first = element(
        "li",
        element("span", element("i", cls="dot k-identical"), "identical", cls="name"),
        element("span", share, cls="share"),
        element("b", f"{identical:,}"),
    )
    return element("ul", first, rows, cls="bars")


def ranking(bars: Sequence[Bar]) -> Markup:
    """Draws bars with long labels, each label above its bar."""
    top = max((bar.count for bar in bars), default=0)
    rows = [
        element(
            "li",
            element("span", shortened(bar.label), cls="name"),
            element("b", f"{bar.count:,}"),
            _track(bar.count, top, ""),
        )
        for bar in bars
    ]
    return element("ul", rows, cls="ranking")


def timeline(stages: Sequence[Stage]) -> Markup:
    """Shows where the time went: one bar divided into stages, and a legend."""
    whole = sum(stage.seconds for stage in stages)
    if not whole:
        return Markup()
    cuts = [
        element("i", cls=f"s{index % 6}", style=f"flex-grow:{stage.seconds / whole:.4f}", title=_stage_said(stage))
        for index, stage in enumerate(stages)
    ]
    legend = [
        element(
            "li",
            element("i", cls=f"dot s{index % 6}"),
            f"{stage.name} ",
            element("b", duration(stage.seconds)),
            _rate(stage),
        )
        for index, stage in enumerate(stages)
    ]
    return element(
        "div", element("div", cuts, cls="timeline", aria_hidden="true"), element("ul", legend, cls="legend"), cls="time"
    )


def _percent(part: int, whole: int) -> str:
    """Writes a percentage that is never rounded up to 100 nor down to 0."""
    if not whole or part == whole:
        return "100 %" if whole else "none"
    share = 100 * part / whole
    return "under 0.01 %" if 0 < share < 0.01 else f"over {99.99:.2f} %" if share > 99.99 else f"{share:.2f} %"


def _stage_said(stage: Stage) -> str:
    return f"{stage.name}: {duration(stage.seconds)}"


def _rate(stage: Stage) -> Markup | None:
    return None if stage.rows is None else element("small", f" {stage.rows:,} rows")


def _track(number: int, top: int, kind: str) -> Markup:
    width = max(100 * number / top, 1.5) if number else 0
    return element("span", element("i", style=f"width:{width:.2f}%", cls=kind), cls="track", aria_hidden="true")


def _merged(bars: Sequence[Bar]) -> list[Bar]:
    size = -(-len(bars) // _MOST_BARS)
    if size == 1:
        return list(bars)
    groups = [bars[start : start + size] for start in range(0, len(bars), size)]
    return [
        Bar(label=f"{group[0].label} \N{EN DASH} {group[-1].label}", count=sum(bar.count for bar in group))
        for group in groups
    ]


def _column(index: int, bar: Bar, many: int, peak: Bar) -> Markup:
    step = _WIDTH / many
    wide = min(step * 0.72, 44)
    middle = index * step + step / 2
    tall = max((_FLOOR - _CEILING) * bar.count / peak.count, 2) if bar.count else 0
    number = None
    room = len(f"{bar.count:,}") * _LETTER
    if bar.count and (room <= step or bar is peak):
        centre = min(max(middle, room / 2), _WIDTH - room / 2)
        height = f"{_FLOOR - tall - 4:.1f}"
        number = element("text", f"{bar.count:,}", x=f"{centre:.1f}", y=height, cls="n", text_anchor="middle")
    column = element(
        "rect",
        element("title", f"{shortened(bar.label)}: {bar.count:,}"),
        x=f"{middle - wide / 2:.1f}",
        y=f"{_FLOOR - tall:.1f}",
        width=f"{wide:.1f}",
        height=f"{tall:.1f}",
        rx=min(2.5, wide / 4),
    )
    return element("g", column, number)


def _labels(bars: Sequence[Bar]) -> list[Markup]:
    """Labels every column if there is room, or else the first and the last one."""
    step = _WIDTH / len(bars)
    y = _FLOOR + 15
    if max(len(bar.label) for bar in bars) * _LETTER <= step:
        return [
            element("text", bar.label, x=f"{index * step + step / 2:.1f}", y=y, text_anchor="middle")
            for index, bar in enumerate(bars)
        ]
    room = int(_WIDTH / _LETTER / 2) - 1
    first, last = bars[0].label[:room], bars[-1].label[:room]
    return [element("text", first, x=0, y=y), element("text", last, x=_WIDTH, y=y, text_anchor="end")]
