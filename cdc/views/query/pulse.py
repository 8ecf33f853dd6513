"""Who waits for the next commit of the view: one look at the store's version serves everybody who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_PAUSE_S: Final = 0.01
"""Between two looks. A read that waits for a commit waits this much longer at worst; looking costs microseconds."""


class Pulse:
    """Looks at the version while somebody waits, and not otherwise. For one event loop.

    Args:
        version: asks the store.
    """

    def __init__(self, version: Callable[[], Awaitable[int]]) -> None:
        self._version = version
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._looking: asyncio.Task[None] | None = None

    async def beyond(self, version: int, timeout_s: float) -> bool:
        """Wait until the store's version is another one; False when the time is up.

        Raises:
            CdcError: the store cannot be asked.
        """
        waits = asyncio.get_running_loop().create_future()
        self._waiting[waits] = version
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait([waits], timeout=timeout_s)
        finally:
            self._waiting.pop(waits, None)
        return waits.done() and waits.result() is None

    async def _look(self) -> None:
        try:
            while self._waiting:
                try:
                    now = await self._version()
                except Exception as error:  # noqa: BLE001 - raised where it is waited for
                    self._fail(error)
                    return
                for waits, version in self._waiting.items():
                    if version != now and not waits.done():
                        waits.set_result(None)
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._looking = None

    def _fail(self, error: Exception) -> None:
        for waits in self._waiting:
            if not waits.done():
                waits.set_exception(error)
