"""What the progress topic tells of the time before the first look."""

from __future__ import annotations

import pytest

from cdc.base.lsn import LSN
from cdc.contract.record import Progress, SourceIdentity
from cdc.ops.dashboard.written import WrittenWal

NOW = 1_000_000.0


def published(*commits: tuple[float, int]) -> list[Progress]:
    """Seconds before now, and LSN."""
    return [Progress(LSN(lsn), None, round((NOW - ago) * 1e6), SourceIdentity("1", 1, 1)) for ago, lsn in commits]


def test_samples_lie_a_step_apart_and_are_averages_of_their_step() -> None:
    seen = WrittenWal(published((50, 1000), (40, 2000), (0, 42_000)))
    moments, rates = zip(*seen.samples(NOW), strict=True)
    assert moments == (NOW - 30, NOW - 15)
    assert rates == pytest.approx(((10 * 1000 + 5 * 100) / 15, 1000))  # 45 to 40 at 100 a second, then at 1,000
    assert seen.rate(NOW) == pytest.approx(1000.0)


def test_a_new_stream_tells_what_it_has() -> None:
    assert WrittenWal(published((4, 100), (2, 300))).rate(NOW) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "commits",
    [
        (),
        ((3, 100),),
        ((900, 100), (600, 9000)),  # nothing was committed since: nobody knows what else was written
        ((3, 100), (3, 200), (3, 300)),  # the same commit, repeated by a stream that stands still
        ((5, 9000), (3, 100)),  # another server
    ],
)
def test_what_nobody_knows_is_not_made_up(commits: tuple[tuple[float, int], ...]) -> None:
    assert WrittenWal(published(*commits)).rate(NOW) is None


def test_a_progress_before_any_commit_is_none() -> None:
    assert WrittenWal([Progress(LSN(5), None, 0, SourceIdentity("1", 1, 1))]).samples(NOW) == []
