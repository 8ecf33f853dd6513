"""The benchmarks say of each target whether it was met."""

from __future__ import annotations

from tests.benchmarks.bridge import COLUMNS
from tests.benchmarks.report import Section
from tests.benchmarks.targets import TARGETS, judged


def test_each_target_that_was_measured_is_judged() -> None:
    section = Section("Bridge: 4 changes", COLUMNS)
    section.add("bridge", {"rate": 150.0, "cpu_s": 5.0, "rss_mb": 100.0, "wall_s": 1.0})
    section.add("pg_recvlogical", {"rate": 50.0})
    lines = {line.split("  ")[1]: line for line in judged([section])}
    assert lines["bridge: client CPU seconds per million changes"].endswith("5.00      ≤ 4  missed by a factor of 1.25")
    assert lines["bridge: rate ÷ pg_recvlogical's"].endswith("3.00    ≥ 1.7  met")
    assert lines["bridge: peak RSS MB"].endswith("met")
    assert len(lines) == 3, "nothing is said of what was not measured"
    assert len({target.what for target in TARGETS}) == len(TARGETS)
