"""A store for reading, opened by the first question: a server that is away then is an answer, and no reason to end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cdc.base.errors import StoreRefused
from cdc.views.store.port import Answer, Store, StoreSize, StoreSnapshot, Transaction


class OpenedWhenAsked:
    """``Store``, as far as readers need it.

    Args:
        open_store: opens the store that is asked.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._opened: Store | None = None
        self._guard = threading.Lock()

    def lock(self) -> bool:
        """As ``Store.lock``, which this one refuses."""
        raise StoreRefused(
            "this store was opened for reading only",
            remedy="let the process that fills the view write: cdc serve without --no-feed",
        )

    def begin(self) -> Transaction:
        """As ``Store.begin``, which this one refuses."""
        raise StoreRefused(
            "this store was opened for reading only",
            remedy="let the process that fills the view write: cdc serve without --no-feed",
        )

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """As ``Store.read``."""
        return self._store().read(query)

    def version(self) -> int:
        """As ``Store.version``."""
        return self._store().version()

    def size(self) -> StoreSize:
        """As ``Store.size``."""
        return self._store().size()

    def close(self) -> None:
        """As ``Store.close``."""
        with self._guard:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _store(self) -> Store:
        if self._opened is None:
            with self._guard:
                if self._opened is None:
                    self._opened = self._open_store()
        return self._opened
