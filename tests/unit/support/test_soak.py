"""What a soak concludes from its measurements, and how it chooses faults: both must be able to say no."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest

from tests.soak.faults import KINDS, Hit, chosen
from tests.soak.figures import DESCRIPTORS, MB, MEMORY, Check, Figures, Growth, Limit, Sample, growth, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.991, 100), (1, 100)]
)
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    values = [float(each) for each in range(1, 101)]
    random.Random(1).shuffle(values)
    assert percentile(values, share) == expected


def test_of_one_value_each_percentile_is_that_value() -> None:
    assert [percentile([7.0], share) for share in (0, 0.5, 0.99, 1)] == [7.0] * 4


def test_growth_compares_the_last_two_thirds() -> None:
    assert growth([1, 1, 1, 10, 20, 10, 30, 30, 90]) == Growth(10, 30)
    assert growth([500, 400, 1, 2, 3, 4]) == Growth(1.5, 3.5), "the start does not count"
    assert growth([0, 0, 0, 0, 10, 20, 30, 40]) == Growth(15, 35), "a rest belongs to the first third"


def test_of_few_samples_nothing_is_concluded() -> None:
    assert growth([1, 2, 3, 4, 5]) is None


@pytest.mark.parametrize(
    ("limit", "before", "after", "exceeds"),
    [
        (MEMORY, 200 * MB, 241 * MB, True),
        (MEMORY, 200 * MB, 239 * MB, False),
        (MEMORY, 50 * MB, 79 * MB, False),
        (MEMORY, 50 * MB, 81 * MB, True),
        (MEMORY, 400 * MB, 100 * MB, False),
        (DESCRIPTORS, 20, 29, False),
        (DESCRIPTORS, 20, 30, True),
    ],
)
def test_what_grows_by_a_share_and_by_an_amount_grows(limit: Limit, before: float, after: float, exceeds: bool) -> None:
    assert Growth(before, after).exceeds(limit) is exceeds


@pytest.mark.parametrize(
    ("leak", "failures"),
    [
        ((0, 0), []),
        ((5 * MB, 0), []),
        ((10 * MB, 0), ["memory of the sink grew from 140,000,000 to 170,000,000"]),
        ((40 * MB, 0), ["memory of the sink grew from 260,000,000 to 380,000,000"]),
        ((0, 5), ["open descriptors of the sink grew from 40 to 55"]),
    ],
)
def test_what_grows_fails_the_run(leak: tuple[float, float], failures: list[str]) -> None:
    figures = Figures()
    for number in range(9):
        figures.samples["bridge"].append(Sample(int(80 * MB), 30, 60))
        rss, descriptors = 100 * MB + number * leak[0], 20 + number * leak[1]
        figures.samples["sink"].append(Sample(int(rss), int(descriptors), 60))
    figures.judge()
    assert figures.failures == failures
    assert all(f"FAILED: {each}" in figures.text() for each in failures)


def test_figures_of_a_run_that_was_broken_off_at_once_can_be_shown() -> None:
    assert "nothing was compared" in Figures().text()


def test_the_tables_show_what_was_measured() -> None:
    figures = Figures(checks=[Check(60, 1.5, 2.5, 61, 12345, 0)])
    figures.faults["sink killed"] = 3
    figures.recoveries["sink killed"] += [2.0, 4.0]
    lines = {line.split("  ")[1].strip(): line.split() for line in figures.text().splitlines() if line[:2] == "  "}
    assert lines["sink killed"] == ["sink", "killed", "3", "2", "2.0", "4.0", "4.0"]
    assert lines["all"][-3:] == ["2.0", "4.0", "4.0"]
    assert lines["1"] == ["1", "60", "1.5", "2.5", "61", "12,345", "0"]


def hits(seed: int, count: int) -> list[Hit]:
    return list(islice(chosen(random.Random(seed), KINDS), count))


def test_a_seed_decides_the_faults() -> None:
    assert hits(1, 50) == hits(1, 50)
    assert [each.kind for each in hits(1, 50)] != [each.kind for each in hits(2, 50)]


def test_each_kind_comes_once_before_any_comes_again() -> None:
    assert Counter(each.kind for each in hits(3, 5 * len(KINDS))) == dict.fromkeys(KINDS, 5)


def test_of_no_kinds_nothing_comes() -> None:
    assert list(chosen(random.Random(1), [])) == []
