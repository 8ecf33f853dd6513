"""Section curves: how rate, memory and latency grow with rows, tables, row width and load; each a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.benchmarks import latency, shape_runs, shapes
from tests.benchmarks.charts import Chart
from tests.benchmarks.report import Column, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.shapes import Shape

ROWS: Final = (0.03, 0.1, 0.3, 1.0, 3.0)
"""In one transaction, of ``--changes``."""
TABLES: Final = (1, 10, 50, 200, 500)
WIDTHS_BYTES: Final = (20, 100, 400, 1600, 6400)
LOADS_PER_S: Final = (50, 100, 250, 500, 1000)

LOAD_COLUMNS = (
    Column("reached_per_s", "reached/s", 0),
    Column("p50_ms", "p50 ms"),
    Column("p99_ms", "p99 ms"),
    Column("max_ms", "max ms"),
)


class Curve(NamedTuple):
    """A section as a chart.

    Attributes:
        name: of its file.
        title: of the section, and of the chart.
        x: name of the axis across.
        y: name of the axis up.
        x_key: figure across.
        lines: name → figure up.
    """

    name: str
    title: str
    x: str
    y: str
    x_key: str
    lines: dict[str, str]

    def chart(self, sections: Sequence[Section]) -> Chart | None:
        """Of the medians; None where the section was not measured."""
        section = next((each for each in sections if each.title == self.title), None)
        return None if section is None else Chart(self.title, self.x, self.y, self._lines(section))

    def _lines(self, section: Section) -> dict[str, list[tuple[float, float]]]:
        lines: dict[str, list[tuple[float, float]]] = {}
        for name, key in self.lines.items():
            for row in section.rows:
                x, y = section.median(row, self.x_key), section.median(row, key)
                if x and y is not None:
                    lines.setdefault(name, []).append((x, y))
        return {name: sorted(points) for name, points in lines.items()}


# CPU and not rates: these curves are the same on a machine that has other work, too.
_BOTH: Final = {"bridge": "cpu_s", "pg_recvlogical": "peer_cpu_s"}
_CPU: Final = "client CPU, seconds per million changes"
GROWING: Final = (
    Curve("rows", "Memory: rows in one transaction", "rows of 20 bytes", "peak RSS, MB", "size", {"bridge": "rss_mb"}),
    Curve("tables", "CPU: tables that change in turn", "tables", _CPU, "size", _BOTH),
    Curve("width", "CPU: width of the rows", "bytes a row", _CPU, "size", _BOTH),
    Curve(
        "load",
        "Latency: single-row transactions at a growing load",
        "transactions/s",
        "ms from commit to topic",
        "reached_per_s",
        {"p50": "p50_ms", "p99": "p99_ms"},
    ),
)


def measure(servers: Servers, changes: int, runs: int, seconds: int) -> Iterator[Section]:
    """A section for each curve."""
    rows, tables, width, load = GROWING
    yield _drained(
        servers, rows, [(round(changes * each), shapes.narrow(round(changes * each))) for each in ROWS], runs
    )
    yield _drained(servers, tables, [(each, shapes.in_tables(changes // 2, each)) for each in TABLES], runs)
    sized = [(each, shapes.wide(min(changes // 5, changes * 200 // each), each)) for each in WIDTHS_BYTES]
    yield _drained(servers, width, sized, runs)
    yield _loaded(servers, load, seconds)


def _drained(servers: Servers, curve: Curve, sized: Sequence[tuple[int, Shape]], runs: int) -> Section:
    section = Section(curve.title, shape_runs.COLUMNS)
    for size, shape in sized:
        with shape_runs.built(servers, f"bench_{curve.name}_{size}", shape) as (dsn, conn):
            shape_runs.run_shape(servers, dsn, conn, section, shape, runs)
            section.rows[shape.name] = [{**each, "size": size} for each in section.rows[shape.name]]
    return section


def _loaded(servers: Servers, curve: Curve, seconds: int) -> Section:
    section = Section(curve.title, LOAD_COLUMNS)
    for rate_per_s in LOADS_PER_S:
        measured, _ = latency.measure(servers, seconds, rate_per_s, name="bench_load")
        section.add(f"{rate_per_s:,} per second asked", measured.rows["commit → topic"][0])
    return section
