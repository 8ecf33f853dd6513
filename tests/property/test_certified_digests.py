"""Digests of random rows: the order does not matter, and anything else does.

``SEED=7 python -m pytest tests/property/test_certified_digests.py`` replays one case.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support.certified_rows import CertifiedRow, bucket_of, buckets_of, digest_of, row_text

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(100)


def random_bytes(rng: random.Random, most: int) -> bytes:
    """Few letters, digits and colons among them, so that texts meet by chance as often as they can."""
    return bytes(rng.choice(b"01:a\0\xff") for _ in range(rng.randrange(most)))


def random_rows(rng: random.Random) -> list[CertifiedRow]:
    keys = {random_bytes(rng, 6) for _ in range(rng.randrange(2, 40))} | {b"1", b"2"}
    nulls = ("", "0", "1,2")
    return [CertifiedRow(key, random_bytes(rng, 12), rng.choice(nulls)) for key in sorted(keys)]


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_order_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng)
    whole = buckets_of(rows)
    assert buckets_of(rng.sample(rows, len(rows))) == whole
    assert sum(each.rows for each in whole) == len(rows)

    place, other = rng.sample(range(len(rows)), 2)
    row, beside = rows[place], rows[other]
    rest = [each for number, each in enumerate(rows) if number not in (place, other)]
    changes = {
        "removed": [*rest, beside],
        "added": [*rows, CertifiedRow(b"a key of its own", b"")],
        "twice": [*rows, row],
        "changed": [*rest, beside, row._replace(value=row.value + b"\0")],
        "null": [*rest, beside, row._replace(json_null=row.json_null + "7")],
        "moved": [*rest, beside, row._replace(key=row.key + row.value[:1], value=row.value[1:] + b"0")],
    }
    if row.value:
        shifted = CertifiedRow(row.key + row.value[:1], row.value[1:], row.json_null)
        changes["shifted"] = [*rest, beside, shifted]
    if row[1:] != beside[1:]:
        swapped = CertifiedRow(row.key, *beside[1:]), CertifiedRow(beside.key, *row[1:])
        changes["swapped"] = [*rest, *swapped]
    for name, changed in changes.items():
        assert buckets_of(changed) != whole, f"SEED={seed}: {name}"
        assert digest_of(changed) != digest_of(rows), f"SEED={seed}: {name}"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_rows_have_one_text(seed: int) -> None:
    rng = random.Random(seed)
    rows = {CertifiedRow(random_bytes(rng, 4), random_bytes(rng, 6), rng.choice(("", "0", "1"))) for _ in range(300)}
    assert len({row_text(each) for each in rows}) == len(rows), f"SEED={seed}"
    # What two equal rows would do to an exclusive or.
    row = next(iter(rows))
    assert digest_of([row, row]) != digest_of([])


def test_keys_fill_all_buckets() -> None:
    assert {bucket_of(b'{"id":%d}' % number) for number in range(2_000)} == set(range(64))
