"""Which cases of a test ``make test`` runs; ``make test-long`` runs the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], sample: Collection[Any]) -> list[Any]:
    """Returns the cases for ``parametrize``; those that are not in the sample are marked ``long``.

    Args:
        cases: a tuple for several parameters, anything else for one.
        sample: some of the cases.
    """
    every = list(cases)
    assert all(each in every for each in sample), "the sample has other cases"
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=[] if each in sample else pytest.mark.long)
        for each in every
    ]
