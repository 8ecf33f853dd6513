"""Which tables are looked at together: small ones, so many that the snapshot is held for minutes at most."""

from __future__ import annotations

from cdc.spark.reconcile.together import MOST_BYTES, SMALL_BYTES, small_ones


def chosen(*sizes: int) -> list[str]:
    """By their numbers."""
    return [name for _, name in small_ones({("public", str(number)): size for number, size in enumerate(sizes)})]


def test_small_ones_in_their_order() -> None:
    assert chosen(1, 0, SMALL_BYTES - 1) == ["0", "1", "2"]


def test_a_large_one_is_left_out() -> None:
    assert chosen(SMALL_BYTES, 1, 10 * SMALL_BYTES, 2) == ["1", "3"]


def test_all_of_them_are_bounded_and_a_tiny_one_still_fits() -> None:
    many = MOST_BYTES // (SMALL_BYTES - 1)
    assert chosen(*[SMALL_BYTES - 1] * (many + 5), 8) == [*map(str, range(many)), str(many + 5)]
