"""Tombstones must stay longer than anybody needs to see them."""

from __future__ import annotations

import pytest

from cdc.contract.compaction import TopicSettings
from cdc.topics.budget import TombstoneReader, budget

HOUR = 3_600_000
DAY = TopicSettings(delete_retention_ms=23 * HOUR, min_compaction_lag_ms=HOUR)


@pytest.mark.parametrize(
    ("behind_h", "rebuild_h", "state", "whose"),
    [
        (1, 2, "kept", "a rebuild"),
        (12, 2, "kept", "group slow"),
        (13, 2, "tight", "group slow"),
        (24, 2, "broken", "group slow"),
        (1, 30, "broken", "a rebuild"),
    ],
)
def test_the_slowest_decides(behind_h: int, rebuild_h: int, state: str, whose: str) -> None:
    found = budget(
        "t",
        DAY,
        [TombstoneReader("group slow", behind_h * HOUR, 5), TombstoneReader("group fast", 0, 0)],
        rebuild_h * HOUR,
    )

    assert (found.window_ms, found.state, found.whose) == (24 * HOUR, state, whose)


def test_a_broken_window_is_mended_and_the_reader_starts_anew() -> None:
    found = budget("t", DAY, [TombstoneReader("group slow", 48 * HOUR, 5)], HOUR)

    assert f"delete.retention.ms={96 * HOUR}" in found.remedy
    assert found.remedy.endswith("have group slow read the topic from its beginning into an empty state")
