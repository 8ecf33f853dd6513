"""Line charts as SVG: one file each, readable on light and on dark pages, and nothing is fetched to show them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 44, 52
TICKS = 5
NAME_GAP = 15.0

# Colours that differ in lightness too, and keep their contrast on both backgrounds.
_STYLE: Final = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5 }
  .s0 { stroke: #0969da } .s1 { stroke: #bc4c00 } .s2 { stroke: #57606a }
  circle.s0 { fill: #0969da } circle.s1 { fill: #bc4c00 } circle.s2 { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .grid { stroke: #3d444d }
    .s0 { stroke: #58a6ff } .s1 { stroke: #f0883e } .s2 { stroke: #b1bac4 }
    circle.s0 { fill: #58a6ff } circle.s1 { fill: #f0883e } circle.s2 { fill: #b1bac4 }
  }
"""

Points = Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """Up to three lines over one axis.

    Attributes:
        title: what is shown.
        x: name of the axis across, with its unit; logarithmic, because what grows here grows by factors.
        y: name of the axis up, with its unit; it begins at 0, so that heights compare.
        lines: name → points, in ascending order across; every x is above 0.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]

    def svg(self) -> str:
        """The whole file."""
        names = f'role="img" aria-label="{escape(self.title)}"'
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {names}>',
                f"<style>{_STYLE}</style>",
                _text(LEFT, 22, self.title, kind="title"),
                *self._up(),
                *self._across(),
                *(each for number, name in enumerate(self.lines) for each in self._line(number, self.lines[name])),
                *self._names(),
                "</svg>\n",
            )
        )

    def _up(self) -> list[str]:
        drawn = [_text(LEFT, TOP - 6, self.y)]
        for tick in range(TICKS + 1):
            value = self._top * tick / TICKS
            drawn.append(_grid(LEFT, self._y(value), WIDTH - RIGHT, self._y(value)))
            drawn.append(_text(LEFT - 8, self._y(value) + 4, short(value), anchor="end"))
        return drawn

    def _across(self) -> list[str]:
        drawn = [_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, self.x, anchor="middle")]
        for value in sorted({x for points in self.lines.values() for x, _ in points}):
            drawn.append(_grid(self._x(value), HEIGHT - BOTTOM, self._x(value), HEIGHT - BOTTOM + 5))
            drawn.append(_text(self._x(value), HEIGHT - BOTTOM + 19, short(value), anchor="middle"))
        return drawn

    def _line(self, number: int, points: Points) -> list[str]:
        places = [(self._x(x), self._y(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = [f'<circle class="s{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places]
        return [f'<polyline class="line s{number}" points="{path}"/>', *dots]

    def _names(self) -> list[str]:
        """Each line's name at its end, moved apart where two lines end close together."""
        drawn, lowest = [], -math.inf
        ends = sorted((self._y(points[-1][1]), name, points[-1][0]) for name, points in self.lines.items())
        for end, name, x in ends:
            lowest = max(end, lowest + NAME_GAP)
            drawn.append(_text(self._x(x) + 9, lowest + 4, name))
        return drawn

    @property
    def _top(self) -> float:
        """The least round number that is not below any point."""
        greatest = max((y for points in self.lines.values() for _, y in points), default=1.0) or 1.0
        power = 10.0 ** math.floor(math.log10(greatest))
        return next(factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if factor * power >= greatest)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - BOTTOM - TOP)

    def _x(self, value: float) -> float:
        all_x = [math.log(x) for points in self.lines.values() for x, _ in points]
        least, span = min(all_x), max(all_x) - min(all_x) or 1.0
        return LEFT + (math.log(value) - least) / span * (WIDTH - RIGHT - LEFT)


def short(value: float) -> str:
    """A number as an axis shows it: 1500 as 1.5k."""
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(words)}</text>'
