"""Keys that PostgreSQL calls equal and prints differently: found by any spelling, and no other key with them."""

from __future__ import annotations

import os
import random
from contextlib import closing
from decimal import Decimal

import pytest

from cdc.views.store.memory import MemoryStore
from cdc.views.store.port import Item, Key, StoreSnapshot
from cdc.views.table.equal_keys import equal_place
from cdc.views.table.facts import KeyColumn
from cdc.views.table.table_keys import TableKeys

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
NUMERICS = [
    "1",
    "1.0",
    "1.00",
    "1.01",
    "1.001",
    "1.5",
    "1.50",
    "10",
    "10.0",
    "-1",
    "-1.0",
    "0",
    "0.0",
    "0.5",
    "NaN",
    "2.000",
]
PADDED = ["ab", "ab ", "ab   ", "ab\x01", "ab\x01 ", "abc", "abc ", "", " ", "a", "a\t"]
ZEROS = [0.0, -0.0, 1.0, -1.0]


def test_a_key_is_found_by_any_spelling_of_its_values() -> None:
    rng = random.Random(SEED)
    columns = [KeyColumn("n", "numeric"), KeyColumn("c", "bpchar"), KeyColumn("f", "float8"), KeyColumn("t", "text")]
    keys = TableKeys("columns", columns)

    def some() -> tuple[str, str, float, str]:
        return rng.choice(NUMERICS), rng.choice(PADDED), rng.choice(ZEROS), rng.choice("xy")

    def value(key: tuple[str, str, float, str]) -> tuple[object, ...]:
        return str(Decimal(key[0]).normalize() + 0), key[1].rstrip(" "), key[2], key[3]

    for _ in range(300):
        held = {value(key): key for key in (some() for _ in range(rng.randint(1, 40)))}
        with closing(MemoryStore()) as store:
            assert store.lock()
            transaction = store.begin()
            transaction.put("rows", [Item(keys.of_values(key), b"") for key in held.values()])
            transaction.commit()
            for _ in range(20):
                asked = some()

                def query(snapshot: StoreSnapshot, asked: tuple[str, str, float, str] = asked) -> Key | None:
                    return equal_place(snapshot, ["rows"], keys.readings, asked, keys.floats)

                place, there = store.read(query), held.get(value(asked))
                wanted = None if there is None else keys.of_values(there).order
                assert (place and place.order) == wanted, (SEED, asked, there, held)


@pytest.mark.parametrize("text", [b'{"n":"1.50","t":"a"}', b'{"t":"a","n":"1.50"}'])
def test_values_of_a_key_come_in_the_order_of_its_columns(text: bytes) -> None:
    keys = TableKeys("columns", [KeyColumn("n", "numeric"), KeyColumn("t", "text")])
    assert keys.spelled_otherwise(text) == ["1.50", "a"]


def test_other_keys_have_one_spelling() -> None:
    keys = TableKeys("columns", [KeyColumn("n", "numeric(10,2)"), KeyColumn("f", "float8")])
    assert keys.spelled_otherwise(("1.50", 2.5)) == ()
