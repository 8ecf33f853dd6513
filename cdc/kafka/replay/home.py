"""Separates records that lie in their key's partition from those that somebody wrote elsewhere.

The bridge writes a row's records and its tombstone to the partition that the key's hash selects. A record in another
partition comes from another program; a repair buries it with a tombstone in the same partition. Neither says anything
about the row. Partitions are read in no particular order, so such a tombstone could follow the row at the same LSN.
That is why readers that identify a row by its key alone leave out both.

``_home.pyx`` does the same in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from cdc.base.compiled import twin
from cdc.contract.partition import partition_of
from cdc.contract.ports import StoredRecord

Sifted: TypeAlias = tuple[Sequence[StoredRecord], Sequence[StoredRecord]]

_Sift: TypeAlias = Callable[[Sequence[StoredRecord], Mapping[str, int]], Sifted]


def sifter() -> _Sift:
    """Returns ``sift``, or its C version if that is compiled."""
    module = twin("cdc.kafka.replay._home")
    chosen: _Sift = sift if module is None else module.sift
    return chosen


def sift(records: Sequence[StoredRecord], counts: Mapping[str, int]) -> Sifted:
    """Returns the records that lie where they belong or have no key, and the others; both in the order of ``records``.

    Args:
        records: records of any topics.
        counts: the number of partitions of each topic; records of topics not listed belong where they are.
    """
    at_home, strays = [], []
    for record in records:
        topic, partition, _, key, _, _ = record
        count = counts.get(topic, 1)
        if count == 1 or key is None or partition_of(key, count) == partition:
            at_home.append(record)
        else:
            strays.append(record)
    return at_home, strays
