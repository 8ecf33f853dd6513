"""Computes the partitions of many keys at once: ``cdc.contract.partition`` in numpy, fast enough for a first look."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf

_MIX: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_WORD_BYTES: Final = 4


def is_stray(key: Column, partition: Column, count: int) -> Column:
    """Returns a condition: of ``count`` partitions, the record is not in the one of its key. False without a key."""
    if count == 1:
        return fn.lit(False)

    def home(keys: pa.Array) -> pa.Array:
        return home_partitions(keys, count)

    # The type hints say what kind of UDF it is. Spark warns if that is passed as well, but its stubs demand it.
    given = arrow_udf(home, "int")  # type: ignore[call-overload]  # pyspark's types want type hints of pandas
    return fn.coalesce(given(key) != partition, fn.lit(False))


def home_partitions(keys: pa.Array, count: int) -> pa.Array:
    """Returns each key's partition, of ``count``; null for a null key."""
    offsets = keys.cast(pa.large_binary())
    _, places, data = offsets.buffers()
    edges = np.frombuffer(places, dtype=np.int64)[offsets.offset : offsets.offset + len(keys) + 1]
    # Three bytes of padding: the last word of the last key may have fewer than four bytes.
    held = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    found = (murmur2(np.concatenate((held, np.zeros(3, dtype=np.uint8))), edges) & np.uint32(0x7FFFFFFF)) % count
    return pa.array(found.astype(np.int32), mask=np.asarray(keys.is_null()))


def murmur2(data: NDArray[np.uint8], edges: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Hashes each of many texts as ``cdc.contract.partition.murmur2`` does.

    Args:
        data: the texts one after the other, followed by three more bytes.
        edges: where each text begins, and where the last one ends.
    """
    starts, lengths = edges[:-1], np.diff(edges)
    words, rest = lengths // _WORD_BYTES, lengths % _WORD_BYTES
    h = _SEED ^ lengths.astype(np.uint32)
    # Longest texts first: then those that still have a word left are always the first of the list.
    order = np.argsort(-words, kind="stable")
    for word in range(int(words.max(initial=0))):
        rows = order[: np.searchsorted(-words[order], -word)]
        k = _word(data, starts[rows] + _WORD_BYTES * word, _WORD_BYTES) * _MIX
        h[rows] = h[rows] * _MIX ^ (k ^ k >> np.uint32(24)) * _MIX
    for left in range(1, _WORD_BYTES):
        rows = np.nonzero(rest == left)[0]
        h[rows] = (h[rows] ^ _word(data, starts[rows] + _WORD_BYTES * words[rows], left)) * _MIX
    h = (h ^ h >> np.uint32(13)) * _MIX
    return h ^ h >> np.uint32(15)


def _word(data: NDArray[np.uint8], places: NDArray[np.int64], length: int) -> NDArray[np.uint32]:
    """Returns the ``length`` bytes at each place, as a little-endian number."""
    value = np.zeros(len(places), dtype=np.uint32)
    for byte in range(length):
        value |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return value
