"""Folds a topic into the table that it holds: the latest committed value of each key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cdc.contract.ports import StoredRecord


class Folded(NamedTuple):
    """The record that counts for a key."""

    value: bytes
    header: bytes


def fold(records: Iterable[StoredRecord]) -> dict[bytes, Folded]:
    """Returns the latest value and header of each key; leaves out keys whose latest record is a tombstone."""
    state: dict[bytes, Folded] = {}
    for record in records:
        if record.key is None:
            continue  # a record without a key does not follow this contract, and is not the state of any key
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = Folded(record.value, record.header)
    return state
