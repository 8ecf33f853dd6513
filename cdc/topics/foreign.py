"""Records of a bridge's topic that this bridge cannot have written: who else writes here? Pure.

What a header says is held against what the bridge says of itself: its definitions, and how far it has published. What
was read lies before ends that were asked for first, so the progress that is read last covers all of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import parse_header

_SHOWN: Final = 100


class ForeignRecord(NamedTuple):
    """One such record; ``why`` in words."""

    partition: int
    offset: int
    key: bytes | None
    why: str

    def __str__(self) -> str:
        key = "" if self.key is None else f", key {self.key[:_SHOWN].decode('utf-8', 'backslashreplace')}"
        return f"partition {self.partition}, offset {self.offset}{key}: {self.why}"


class ForeignRecords:
    """Takes the records of one topic, and knows in the end which are foreign.

    Args:
        definitions: fingerprints that the schemas topic has for the topic.
        published: everything that committed before was published before the topic was read.
    """

    def __init__(self, definitions: Collection[str], published: LSN) -> None:
        self._definitions = definitions
        self._published = published
        self._found: list[ForeignRecord] = []
        self._newer: list[tuple[LSN, ForeignRecord]] = []

    def add(self, partition: int, offset: int, key: bytes | None, header: bytes | None) -> None:
        """The next record."""

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
            self._newer.append((told.lsn, foreign(f"the bridge has not come to its LSN {told.lsn}")))

    def found(self, published: LSN | None) -> list[ForeignRecord]:
        """All that are.

        Args:
            published: what the bridge had published when everything was read; None when rows may be ahead of that.
        """
        beyond = [] if published is None else [each for lsn, each in self._newer if lsn >= published]
        return [*self._found, *beyond]
