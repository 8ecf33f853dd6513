"""What a snapshot of the source sees: what was over when it was taken, and nothing else."""

from __future__ import annotations

import pytest

from cdc.contract.snapshot import Snapshot


@pytest.mark.parametrize(
    ("text", "snapshot"),
    [
        ("10:20:", Snapshot(20, frozenset())),
        ("10:20:10", Snapshot(20, frozenset({10}))),
        ("10:20:10,14,17", Snapshot(20, frozenset({10, 14, 17}))),
    ],
)
def test_as_the_server_prints_it(text: str, snapshot: Snapshot) -> None:
    assert Snapshot.parse(text) == snapshot


def test_it_sees_what_was_over() -> None:
    snapshot = Snapshot.parse("10:20:10,14")
    assert [xid for xid in range(8, 23) if snapshot.sees(xid)] == [8, 9, 11, 12, 13, 15, 16, 17, 18, 19]
