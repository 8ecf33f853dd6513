"""The benchmark of compacted and standard topics still runs, and its figures are the topics'."""

from __future__ import annotations

import pytest

from cdc.lab.stack import KafkaBroker
from tests.benchmarks import compacted


def test_compacted_and_standard_topics_have_their_rows(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "READS", 200)
    disk, both = compacted.measure(kafka.bootstrap, kafka.pid, records=4_000, runs=2)
    sizes = {name: runs[0] for name, runs in disk.rows.items()}
    assert list(sizes) == [f"after {written:,}" for written in range(800, 4_001, 800)]
    assert all((size["after_mb"] or 0) < (size["before_mb"] or 0) for size in sizes.values())
    assert (sizes["after 4,000"]["after_mb"] or 0) < (sizes["after 4,000"]["standard_mb"] or 0) / 2
    records = {name: {run["records"] for run in runs} for name, runs in both.rows.items()}
    assert records == {"standard": {4_000 + 5}, "compacted": {200 + 2}}, "and what closes segments"
