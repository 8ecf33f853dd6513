"""Records of a compacted topic → what each key holds now. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from cdc.contract.ports import StoredRecord
from cdc.state.values import decode

ABSENT: Final = -1
"""The version of a key that holds nothing."""


class Entry(NamedTuple):
    """What a key holds.

    Attributes:
        value: bytes of the record; ``content`` reads them.
        version: offset of the record in the key's partition; every later value of the key has a greater one.
        header: bytes of the record's header ``cdc``, empty when it has none.
    """

    value: bytes
    version: int
    header: bytes = b""

    @property
    def content(self) -> dict[str, Any]:
        """The value as JSON.

        Raises:
            ValueRefused: it is no JSON object.
        """
        return decode(self.value)


class Change(NamedTuple):
    """A key that holds something else now; None for nothing."""

    key: bytes
    old: Entry | None
    new: Entry | None


class Entries:
    """The latest entry of each key."""

    def __init__(self) -> None:
        self.now: dict[bytes, Entry] = {}

    def take(self, records: Iterable[StoredRecord]) -> list[Change]:
        """Fold records in; what each of them changed. Only a record without a value deletes.

        Deleting what is not there changes nothing: a compacted topic may hold a tombstone whose row is long erased.
        """
        changes = []
        for record in records:
            if record.key is None:
                continue  # no state of any key
            old = self.now.get(record.key)
            if record.value is not None:
                new = self.now[record.key] = Entry(record.value, record.offset, record.header)
                changes.append(Change(record.key, old, new))
            elif old is not None:
                del self.now[record.key]
                changes.append(Change(record.key, old, None))
        return changes

    def version(self, key: bytes) -> int:
        """Of the key's entry, ``ABSENT`` when there is none."""
        entry = self.now.get(key)
        return ABSENT if entry is None else entry.version
