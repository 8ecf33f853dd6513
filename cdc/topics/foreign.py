"""Finds records in a bridge's topic that the bridge cannot have written. Pure.

A record's header is compared with what the bridge records about itself: its definitions, and how far it has published.
The topic is read up to ends that were asked for first, and the progress is read last. So the progress covers every
record of the bridge that was read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import parse_header

_SHOWN: Final = 100


class ForeignRecord(NamedTuple):
    """A record that the bridge cannot have written, and why."""

    partition: int
    offset: int
    key: bytes | None
    why: str

    def __str__(self) -> str:
        key = "" if self.key is None else f", key {self.key[:_SHOWN].decode('utf-8', 'backslashreplace')}"
        return f"partition {self.partition}, offset {self.offset}{key}: {self.why}"


class ForeignRecords:
    """Collects the foreign records of one topic.

    Args:
        definitions: the fingerprints that the schemas topic has for this topic.
        published: how far the bridge had published before the topic was read.
    """

    def __init__(self, definitions: Collection[str], published: LSN) -> None:
        self._definitions = definitions
        self._published = published
        self._found: list[ForeignRecord] = []
        self._newer: list[tuple[LSN, ForeignRecord]] = []

    def add(self, partition: int, offset: int, key: bytes | None, header: bytes | None) -> None:
        """Checks the next record."""

        def foreign(why: str) -> ForeignRecord:
            return ForeignRecord(partition, offset, key, why)

        if header is None:
            self._found.append(foreign("it has no header cdc"))
            return
        try:
            told = parse_header(header)
        except DecodeError:
            text = header[:_SHOWN].decode("utf-8", "backslashreplace")
            self._found.append(foreign(f"its header is not of the topic contract: {text}"))
            return
        if told.schema not in self._definitions:
            self._found.append(foreign(f"the schemas topic has no definition {told.schema} of this topic"))
        elif told.lsn >= self._published:
            # Not foreign for certain: the bridge may have published it while the topic was read
            self._newer.append((told.lsn, foreign(f"the bridge has not come to its LSN {told.lsn}")))

    def found(self, published: LSN | None) -> list[ForeignRecord]:
        """Returns the foreign records.

        Args:
            published: how far the bridge had published when everything was read; None when rows may be ahead of that.
        """
        beyond = [] if published is None else [each for lsn, each in self._newer if lsn >= published]
        return [*self._found, *beyond]
