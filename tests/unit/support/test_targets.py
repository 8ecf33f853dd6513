"""The benchmarks say of each target whether it was met."""

from __future__ import annotations

from tests.benchmarks.bridge import COLUMNS
from tests.benchmarks.report import Section
from tests.benchmarks.targets import TARGETS, judged, lines


def test_each_target_is_met_or_missed_or_not_measured() -> None:
    section = Section("Bridge: 4 changes", COLUMNS)
    section.add("bridge", {"rate": 150.0, "cpu_s": 5.0, "rss_mb": 100.0, "wall_s": 1.0})
    section.add("pg_recvlogical", {"rate": 50.0})
    verdicts = {each.target.what: each for each in judged([section])}
    assert list(verdicts) == [target.what for target in TARGETS]
    words = {what: each.words for what, each in verdicts.items() if each.figure is not None}
    assert words == {
        "bridge: client CPU seconds per million changes": "missed, by a factor of 1.25",
        "bridge: rate ÷ pg_recvlogical's": "met, by a factor of 1.76",
        "bridge: rate ÷ go-pq-cdc-kafka's (scaled)": "met, by a factor of 1.57",
        "bridge: peak RSS MB": "met, by a factor of 2.00",
    }
    assert verdicts["sink: peak RSS MB"].words == "not measured"
    printed = list(lines(list(verdicts.values())))
    assert printed[1].endswith("3.00    ≥ 1.7  met, by a factor of 1.76")
