"""A topic as the table that it holds: the latest committed value per key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cdc.contract.ports import StoredRecord


class Folded(NamedTuple):
    """The record that counts for a key."""

    value: bytes
    header: bytes


def fold(records: Iterable[StoredRecord]) -> dict[bytes, Folded]:
    """Latest value and header per key; keys whose latest record is a tombstone are left out."""
    state: dict[bytes, Folded] = {}
    for record in records:
        if record.key is None:
            continue  # not of this contract, and no state of any key
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = Folded(record.value, record.header)
    return state
