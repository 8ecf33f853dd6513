"""The changes of a table, read and written down once for all watchers that are up to date.

One task for each watched table reads the journal, and keeps what it found for a while as pieces, one after the other. A
watcher that knows everything up to a version takes the first piece that goes beyond it. Each piece was read from the
store at its own end or later, so no watcher goes back to an older row. A key that changed both before and after the
watcher's version is sent again, which does no harm.

A watcher that lags further than the pieces reach reads the journal alone until it is up to date. So a slow client holds
up nobody, and memory is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

import structlog

from cdc.base.errors import CdcError
from cdc.views.query.desk import Desk, StoreTables
from cdc.views.query.events import changed_rows
from cdc.views.query.parameters import MAX_PAGE
from cdc.views.table.answers import Changes
from cdc.views.table.cursors import Token, parse_token

KEPT_BYTES: Final = 4 << 20
"""How many bytes of pieces each watched table keeps. The newest piece is kept whatever its size."""
REST_S: Final = 0.000_5
"""Pause between two reads, for each watcher: about what it takes to send something to one of them. With many watchers
the pieces get larger, instead of more numerous than the process can send."""
_LONGEST_REST_S: Final = 0.25
_FOREVER_S: Final = 3600.0

log = structlog.get_logger("cdc.serve")

Position: TypeAlias = tuple[int, int]
"""A version, and the number of known keys of the commit after it: as in ``Token``."""


class EventBlock(NamedTuple):
    """A piece: the events between two positions.

    Attributes:
        end: this piece and those before it tell everything up to here.
        token: the token for ``end``.
        events: the bytes to send; empty if nothing changed up to ``end``.
    """

    end: Position
    token: str
    events: bytes


class Broadcasts:
    """The broadcasts of one process. Use them in its event loop.

    Args:
        desk: the desk of the process.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk: Final = desk
        self._open: dict[str, Broadcast] = {}

    @contextmanager
    def joined(self, part: StoreTables, table: str, token: str) -> Iterator[Broadcast]:
        """Listens to a table's changes while the block runs.

        Args:
            part: the store that has the table.
            table: the table's name.
            token: the caller knows everything up to here.
        """
        broadcast = self._open.get(table)
        if broadcast is None or broadcast.is_over:
            broadcast = self._open[table] = Broadcast(self._desk, part, table, token)
        broadcast.listeners += 1
        try:
            yield broadcast
        finally:
            broadcast.listeners -= 1
            if not broadcast.listeners:
                broadcast.end()
                if self._open.get(table) is broadcast:
                    del self._open[table]


class Broadcast:
    """The changes of one table after a position; made by ``Broadcasts``.

    Attributes:
        listeners: how many watchers listen.
        is_over: True when the journal reports more than changes, or cannot be read: each listener must read it alone.
    """

    def __init__(self, desk: Desk, part: StoreTables, table: str, token: str) -> None:
        self._desk: Final = desk
        self._part: Final = part
        self._table: Final = table
        self._pieces: deque[EventBlock] = deque()
        self._size = 0
        self._begin = position(token)
        self._known = EventBlock(self._begin, token, b"")
        self._waiting: set[asyncio.Future[None]] = set()
        self.listeners = 0
        self.is_over = False
        self._reading = asyncio.create_task(self._read(token))

    async def after(self, known: Position, timeout_s: float) -> EventBlock | None:
        """Returns the next piece for a watcher that knows everything up to this position.

        Returns:
            A piece without events when the time is up; None when the watcher has to read the journal alone.
        """
        ends_at = asyncio.get_running_loop().time() + timeout_s
        while not self.is_over and known >= self._begin:
            if (piece := self._beyond(known)) is not None:
                return piece
            left_s = ends_at - asyncio.get_running_loop().time()
            if left_s <= 0 or not await self._news(left_s):
                return max(self._known, EventBlock(known, "", b""))  # never back before what the caller knows
        return None

    def end(self) -> None:
        """Stops reading."""
        self._reading.cancel()
        self._over()

    def _beyond(self, known: Position) -> EventBlock | None:
        """Finds the first piece that ends after ``known``, from the end: most callers lack only the newest piece."""
        found = None
        for piece in reversed(self._pieces):
            if piece.end <= known:
                break
            found = piece
        return found

    async def _news(self, timeout_s: float) -> bool:
        waits = asyncio.get_running_loop().create_future()
        self._waiting.add(waits)
        try:
            await asyncio.wait([waits], timeout=timeout_s)
        finally:
            self._waiting.discard(waits)
        return waits.done()

    async def _read(self, token: str) -> None:
        try:
            while True:
                # Mypy cannot infer a lambda with a default.
                found, events = await self._desk.slow(lambda token=token: self._look(token))  # type: ignore[misc]  # mypy does not type a lambda's default
                if found.reset:
                    return
                token = found.token
                self._keep(EventBlock(position(token), token, events))
                if position(token)[0] < found.version:
                    continue
                await asyncio.sleep(min(self.listeners * REST_S, _LONGEST_REST_S))
                await self._part.pulse.beyond(found.version, _FOREVER_S)
        except CdcError:
            pass  # each listener reads the journal alone, and meets the same error
        except Exception as error:
            log.error(
                "the changes of a table could not be read for its watchers",
                table=self._table,
                exc_info=error,
                remedy="let clients watch again: their connections were closed; report this error if it comes back",
            )
        finally:
            self._over()

    def _look(self, token: str) -> tuple[Changes, bytes]:
        """Reads what changed, and writes it as it is sent. Runs in a thread."""
        found = self._part.view.changes(token, (self._table,), MAX_PAGE)
        return found, changed_rows(found.changed, found.token)

    def _keep(self, piece: EventBlock) -> None:
        self._known = piece._replace(events=b"")
        if not piece.events:
            return
        self._pieces.append(piece)
        self._size += len(piece.events)
        while self._size > KEPT_BYTES and len(self._pieces) > 1:
            gone = self._pieces.popleft()
            self._size -= len(gone.events)
            self._begin = gone.end
        self._wake()

    def _over(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        for waits in self._waiting:
            if not waits.done():
                waits.set_result(None)


def position(token: str) -> Position:
    """The position that a token of this store stands for."""
    parsed: Token = parse_token(token)
    return parsed.version, parsed.keys
