"""Covering arrays: a few combinations of options in which any two values of two options meet at least once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Final, TypeAlias

Choice: TypeAlias = dict[str, Any]
"""A value for each option."""

Place: TypeAlias = tuple[str, int]
"""An option, and the index of one of its values."""

_TRIES: Final = 50
"""Random combinations, of which the best is taken."""


def covering(options: Mapping[str, Sequence[Any]], allowed: Callable[[Choice], bool] = lambda _: True) -> list[Choice]:
    """Combinations that cover every pair: each the best of some random ones; always the same for the same options.

    Args:
        options: by name, the values that it may have.
        allowed: whether a combination, of some or all options, may be given; asked of parts, it must not forbid what
            the rest could still allow.

    Returns:
        As many as it takes, the one that covers most first.
    """
    rng = random.Random(0)
    left = {pair for pair in _pairs(options) if allowed(_values(options, pair))}
    found = []
    while left:
        grown = [_grown(options, allowed, left, rng) for _ in range(_TRIES)]
        best = max(grown, key=lambda row: _news(row, left))
        news = {pair for pair in combinations(sorted(best), 2) if pair in left}
        if not news:
            raise AssertionError(f"no combination has {_values(options, min(left))}")
        left -= news
        found.append(_values(options, best))
    return found


def _pairs(options: Mapping[str, Sequence[Any]]) -> list[tuple[Place, Place]]:
    return [
        ((one, i), (other, j))
        for one, other in combinations(sorted(options), 2)
        for i, j in product(range(len(options[one])), range(len(options[other])))
    ]


def _grown(
    options: Mapping[str, Sequence[Any]],
    allowed: Callable[[Choice], bool],
    left: set[tuple[Place, Place]],
    rng: random.Random,
) -> tuple[Place, ...]:
    """A combination with a pair that is left, each further value chosen for what it adds; empty when there is none."""
    row: tuple[Place, ...] = rng.choice(sorted(left))
    names = [name for name in options if name not in dict(row)]
    rng.shuffle(names)
    for name in names:
        longer = [(*row, (name, index)) for index in range(len(options[name]))]
        longer = [each for each in longer if allowed(_values(options, each))]
        if not longer:
            return ()
        rng.shuffle(longer)
        row = max(longer, key=lambda each: _news(each, left))
    return row


def _news(row: Sequence[Place], left: set[tuple[Place, Place]]) -> int:
    return sum(pair in left for pair in combinations(sorted(row), 2))


def _values(options: Mapping[str, Sequence[Any]], row: Sequence[Place]) -> Choice:
    return {name: options[name][index] for name, index in row}
