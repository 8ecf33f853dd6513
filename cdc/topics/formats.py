"""Tells which formats the rows of a topic are in, by how their values begin. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

HEAD_BYTES: Final = 5
"""A zero byte and a schema's id in four bytes: Confluent's wire format."""


class FormatsOfRows:
    """Counts the rows of one topic by format, of which the newest records are added in the order of each partition.

    Only the last record of a key counts. Older ones wait for the cleaner, as all of them do after the format changed.

    Args:
        written: the format of each schema that the topic's definitions name, by its id; empty if there is no bridge.
    """

    def __init__(self, written: Mapping[int, str]) -> None:
        self._written = written
        self._last: dict[tuple[int, bytes], str] = {}

    def add(self, partition: int, key: bytes | None, head: bytes | None) -> None:
        """Adds the next record: ``head`` is the beginning of its value, or None for a tombstone."""
        if key is not None:
            self._last[partition, key] = "" if head is None else self._format(head)

    def found(self) -> Mapping[str, int]:
        """Returns the number of rows by format; values in none of them are left out."""
        return Counter(name for name in self._last.values() if name)

    def _format(self, head: bytes) -> str:
        if head[:1] == b"{":
            return "json"
        if head[:1] == b"\0" and len(head) == HEAD_BYTES:
            return self._written.get(int.from_bytes(head[1:], "big"), "a schema that no definition names")
        return ""
