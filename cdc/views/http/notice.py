"""A text that one process writes and others read, in memory that they share: the feed's metrics, for ``/metrics``."""

from __future__ import annotations

import multiprocessing
from typing import Any, Final, NamedTuple

_SIZE: Final = 256 * 1024
"""Bytes: some thousand tables. What is longer is not shown."""
_TRIES: Final = 3


class SharedNotice(NamedTuple):
    """The memory. It may be handed to a process that is spawned."""

    text: Any
    marks: Any


def shared_notice() -> SharedNotice:
    """An empty one."""
    context = multiprocessing.get_context("spawn")
    return SharedNotice(context.RawArray("c", _SIZE), context.RawArray("q", 2))


class Notice:
    """No lock: a process that is killed would keep it. The reader looks whether it was written meanwhile.

    Args:
        shared: the memory.
    """

    def __init__(self, shared: SharedNotice) -> None:
        self._text = memoryview(shared.text).cast("B")
        self._marks = shared.marks

    def write(self, text: bytes) -> None:
        """Put a text in the place of the one before; by one process only."""
        if len(text) > _SIZE:
            text = b""
        self._marks[0] += 1
        self._text[: len(text)] = text
        self._marks[1] = len(text)
        self._marks[0] += 1

    def read(self) -> bytes:
        """The text; nothing when it is being written again and again."""
        for _ in range(_TRIES):
            before = self._marks[0]
            text = bytes(self._text[: self._marks[1]])
            if before % 2 == 0 and self._marks[0] == before:
                return text
        return b""
