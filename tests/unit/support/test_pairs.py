"""Every pair of values that may meet does, in few combinations."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.support.pairs import Choice, covering

OPTIONS = {"where": (None, "id > 1"), "passes": (1, 2, 4), "state": (None, "kept"), "resume": (False, True)}


def allowed(choice: Choice) -> bool:
    return not (choice.get("state") and choice.get("passes", 1) > 1)


def test_every_allowed_pair_meets_and_no_other() -> None:
    rows = covering(OPTIONS, allowed)
    assert all(set(row) == set(OPTIONS) and allowed(row) for row in rows)
    for one, other in combinations(OPTIONS, 2):
        for pair in product(OPTIONS[one], OPTIONS[other]):
            wanted = dict(zip((one, other), pair, strict=True))
            assert any(wanted.items() <= row.items() for row in rows) is allowed(wanted), wanted
    assert len(rows) <= 8
    assert covering(OPTIONS, allowed) == rows


def test_few_of_many() -> None:
    assert len(covering({f"option {number}": (0, 1) for number in range(12)})) <= 9


def test_what_cannot_be_told() -> None:
    with pytest.raises(AssertionError, match="no combination has"):
        covering({"a": (1,), "b": (1,), "c": (1,)}, lambda choice: len(choice) < 3)
