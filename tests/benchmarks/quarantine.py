"""Section quarantine: what rows that topic or replica refuse cost the rows of another table."""

from __future__ import annotations

from typing import Final

from tests.benchmarks import latency
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers

_COLUMNS: Final = (
    Column("topic_p50_ms", "→ topic p50 ms"),
    Column("topic_p99_ms", "→ topic p99 ms"),
    Column("replica_p50_ms", "→ replica p50 ms"),
    Column("replica_p99_ms", "→ replica p99 ms"),
)
_NOTES: Final = (
    f"the same {latency.LETTERS_PER_S} updates a second of another table in both rows: each second "
    f"{latency.ODD_PER_S} of them makes a row of 1.1 MB, and {latency.ODD_PER_S} one with a negative number; topic and "
    "replica take all of them, or refuse these two",
)


def measure(servers: Servers, seconds: int, runs: int) -> Section:
    """Measure the latency of one table beside rows of another one that are taken, and that are refused, by turns."""
    slow, _ = latency.RATES_PER_S
    title = f"Quarantine: latency of one table at {slow}/s, beside rows of another table that are put aside"
    section = Section(title, _COLUMNS, notes=list(_NOTES))
    for run in range(runs):
        for are_refused in (False, True):
            measured, _ = latency.measure(
                servers, seconds, slow, beside=latency.Letters(are_refused), name=f"bench_quarantine_{run}"
            )
            section.add("beside refused rows" if are_refused else "beside taken rows", _figures(measured))
    return section


def _figures(measured: Section) -> Figures:
    return {
        f"{where}_{key}": measured.median(f"commit → {where}", key)
        for where in ("topic", "replica")
        for key in ("p50_ms", "p99_ms")
    }
