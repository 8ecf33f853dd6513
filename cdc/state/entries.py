"""Records of a compacted topic → the current entry of each key. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from cdc.contract.ports import StoredRecord
from cdc.state.values import decode

ABSENT: Final = -1
"""The version of a key that has no value."""


class Entry(NamedTuple):
    """The newest record of a key.

    Attributes:
        value: the record's bytes, which ``content`` parses.
        version: the record's offset in the key's partition; every later value of the key has a greater one.
        header: the bytes of the record's header ``cdc``; empty when it has none.
    """

    value: bytes
    version: int
    header: bytes = b""

    @property
    def content(self) -> dict[str, Any]:
        """The value, parsed as a JSON object.

        Raises:
            ValueRefused: the value is not a JSON object.
        """
        return decode(self.value)


class Change(NamedTuple):
    """A change of a key: its entries before and after, None where it had or has no value."""

    key: bytes
    old: Entry | None
    new: Entry | None


class Entries:
    """The newest entry of each key."""

    def __init__(self) -> None:
        self.now: dict[bytes, Entry] = {}

    def take(self, records: Iterable[StoredRecord]) -> list[Change]:
        """Folds records in and returns what each of them changed. Only a record without a value deletes a key.

        Deleting a key that is not there changes nothing: a compacted topic may hold a tombstone whose value is long
        gone.
        """
        changes = []
        for record in records:
            if record.key is None:
                continue  # not the state of any key
            old = self.now.get(record.key)
            if record.value is not None:
                new = self.now[record.key] = Entry(record.value, record.offset, record.header)
                changes.append(Change(record.key, old, new))
            elif old is not None:
                del self.now[record.key]
                changes.append(Change(record.key, old, None))
        return changes

    def version(self, key: bytes) -> int:
        """Returns the version of the key's entry, or ``ABSENT``."""
        entry = self.now.get(key)
        return ABSENT if entry is None else entry.version
