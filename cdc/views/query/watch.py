"""The events for one client that watches a table: first every row, then each key that changes, without end.

A client that is up to date gets what a ``Broadcast`` reads for everybody. A client that begins, comes back, or is not
up to date has the journal read for itself, until it is.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from cdc.views.query.broadcast import Broadcasts, position
from cdc.views.query.desk import Desk, StoreTables
from cdc.views.query.events import changed_rows, event, every_row, heartbeat
from cdc.views.query.parameters import MAX_PAGE
from cdc.views.table.answers import Range
from cdc.views.table.errors import WrongCursor

HEARTBEAT_S: Final = 15.0
"""How often a silent watch sends something. Proxies close connections that are silent for a minute, some after 30 s."""


class _Told(NamedTuple):
    """Events, and the token up to which the client knows everything after them; no token while it does not."""

    events: bytes
    token: str


class Watch:
    """The watch of one client.

    Args:
        desk: the desk of the process.
        broadcasts: the broadcasts of the process.
        part: the store that has the table.
        table: the table's name.
    """

    def __init__(self, desk: Desk, broadcasts: Broadcasts, part: StoreTables, table: str) -> None:
        self._desk: Final = desk
        self._broadcasts: Final = broadcasts
        self._part: Final = part
        self._table: Final = table
        self._silent_until = 0.0

    async def events(self, token: str) -> AsyncGenerator[bytes, None]:
        """Yields events, without end.

        Args:
            token: ``Last-Event-ID``; empty to begin with a snapshot.
        """
        reason = ""
        self._silent_until = time.monotonic() + HEARTBEAT_S
        while True:
            if not token:
                async with aclosing(self._snapshot(reason)) as snapshot:
                    async for told in snapshot:
                        token = told.token
                        yield told.events
            try:
                found = await self._desk.slow(partial(self._part.view.changes, token, (self._table,), MAX_PAGE))
            except WrongCursor as error:
                token, reason = "", error.message
                continue
            if found.reset:
                token, reason = "", found.reset[self._table]
                continue
            # The token moves past commits of other tables as well: one call reads only a part of the journal.
            token = found.token
            if found.changed:
                self._was_told()
                yield changed_rows(found.changed, token)
            elif time.monotonic() >= self._silent_until:
                yield await self._heartbeat(token)
            if position(token) == (found.version, 0):
                async with aclosing(self._shared(token)) as shared:
                    async for told in shared:
                        token = told.token
                        yield told.events

    async def _shared(self, token: str) -> AsyncGenerator[_Told, None]:
        """Yields what is read for everybody, for as long as this client keeps up."""
        with self._broadcasts.joined(self._part, self._table, token) as broadcast:
            while True:
                left_s = max(self._silent_until - time.monotonic(), 0)
                piece = await broadcast.after(position(token), left_s)
                if piece is None:
                    return
                token = piece.token or token
                if piece.events:
                    self._was_told()
                    yield _Told(piece.events, token)
                else:
                    yield _Told(await self._heartbeat(token), token)

    async def _snapshot(self, reason: str) -> AsyncGenerator[_Told, None]:
        """Yields all rows, then the token to go on with. What changes meanwhile is sent again after the snapshot."""
        start = await self._desk.slow(partial(self._part.view.changes, "", (self._table,), 1))
        if reason:
            yield _Told(event("reset", {"reason": reason}), "")
        after: str | None = None
        rows = 0
        while True:
            wanted = Range(limit=MAX_PAGE, after=after)
            page = await self._desk.slow(partial(self._part.view.scan, self._table, wanted))
            rows += len(page.rows)
            if page.rows:
                yield _Told(every_row(page.rows), "")
            after = page.after
            if after is None:
                break
        last = b""
        while told := await self._desk.slow(partial(self._part.view.unreadable, self._table, wanted, last)):
            yield _Told(changed_rows(told, ""), "")
            last = told[-1].order
        yield _Told(event("snapshot", {"rows": rows}, start.token), start.token)

    async def _heartbeat(self, token: str) -> bytes:
        self._was_told()
        return heartbeat(await self._desk.quick(self._part.view.facts), self._table, token)

    def _was_told(self) -> None:
        self._silent_until = time.monotonic() + HEARTBEAT_S
