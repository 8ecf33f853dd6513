"""Where keys belong, computed for many at once, is what the topic contract says of each."""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pytest

from cdc.contract.partition import murmur2, partition_of
from cdc.spark.reconcile import home


def test_as_the_contract_for_keys_of_every_length() -> None:
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    rng = random.Random(seed)
    keys = [rng.randbytes(length) for length in (*range(70), 1_000, 1_001, 1_002, 1_003) for _ in range(3)]
    rng.shuffle(keys)
    data = np.frombuffer(b"".join(keys) + bytes(3), dtype=np.uint8)
    edges = np.cumsum([0, *map(len, keys)])
    assert home.murmur2(data, edges).tolist() == list(map(murmur2, keys)), f"SEED={seed}"


@pytest.mark.parametrize("count", [2, 3, 50])
def test_partitions_of_a_slice_with_nulls(count: int) -> None:
    keys = [b'{"id":1}', None, b"", b'{"id":22}', None, b"x"]
    expected = [None if key is None else partition_of(key, count) for key in keys[1:]]
    assert home.home_partitions(pa.array(keys, pa.binary()).slice(1), count).to_pylist() == expected
    assert home.home_partitions(pa.array([], pa.binary()), count).to_pylist() == []
