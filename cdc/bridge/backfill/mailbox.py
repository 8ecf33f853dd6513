"""A queue between threads, bounded in items and in bytes: memory does not depend on the size of a row."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Many threads put, one takes and never waits.

    Args:
        items: at most so many wait here.
        size: at most so many bytes, but for one item that is larger by itself.
    """

    def __init__(self, items: int, size: int) -> None:
        self._max_items = items
        self._max_bytes = size
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, item: T, size: int) -> bool:
        """Leave an item of ``size`` bytes, once there is room for it; False when the mailbox was closed before."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._has_room(size))
            if self._is_closed:
                return False
            self._items.append((item, size))
            self._bytes += size
            return True

    def take(self) -> T | None:
        """The first item; None when there is none."""
        with self._changed:
            if not self._items:
                return None
            item, size = self._items.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Whoever waits for room waits no longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self._items or (len(self._items) < self._max_items and self._bytes + size <= self._max_bytes)
