"""Records where their keys belong, and those that somebody wrote elsewhere.

A row's record, and its tombstone, are always in the partition that its key leads to. What lies in another one was put
there by another program; a repair buries it with a tombstone there. Neither says anything of the row, and partitions
are read in no order: the tombstone could come behind the row, at the same LSN. So readers that know a row by its key
alone leave both out.

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
    """``sift``, in C where it was compiled."""
    module = twin("cdc.kafka.replay._home")
    chosen: _Sift = sift if module is None else module.sift
    return chosen


def sift(records: Sequence[StoredRecord], counts: Mapping[str, int]) -> Sifted:
    """Records that lie where they belong, or have no key, and the others; each in the order of ``records``.

    Args:
        records: of any topics.
        counts: by topic, among how many partitions its keys are spread; records of other topics belong where they are.
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
