"""Looks keys up together where the store is a network away: one question to the store for many requests.

A request that comes alone is asked at once. Requests that come while questions are under way share the next question,
so each of them costs less the more there are. All rows of one question, and their evidence, are from one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from cdc.views.query.keys import KeyValues
from cdc.views.table.answers import Found
from cdc.views.table.errors import WrongKey
from cdc.views.table.table_view import TableView

_AT_ONCE: Final = 2
"""Questions under way: the server answers one while this process writes the answers of the other."""
MOST: Final = 256
"""Keys of one question. The server needs less than a millisecond for them, and serves nobody else meanwhile."""


class _Wanted(NamedTuple):
    key: KeyValues
    answer: asyncio.Future[Found]


_Table: TypeAlias = tuple[TableView, str]
_Answers: TypeAlias = list[Found | Exception]


class RequestsTogether:
    """The requests of one event loop.

    Args:
        in_thread: runs a blocking function.
    """

    def __init__(self, in_thread: Callable[[Callable[[], _Answers]], Awaitable[_Answers]]) -> None:
        self._in_thread = in_thread
        self._wanted: dict[_Table, list[_Wanted]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def get(self, view: TableView, table: str, key: KeyValues) -> Found:
        """Looks up the row of a key; raises as ``TableView.get``."""
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault((view, table), []).append(_Wanted(key, answer))
        if len(self._asking) < _AT_ONCE:
            asking = asyncio.create_task(self._ask())
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        return await answer

    async def _ask(self) -> None:
        while self._wanted:
            table, wanted = next(iter(self._wanted.items()))
            now, later = wanted[:MOST], wanted[MOST:]
            del self._wanted[table]
            if later:
                self._wanted[table] = later  # goes to the end of the queue, after the other tables
            try:
                found = await self._in_thread(partial(_found, *table, [each.key for each in now]))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                found = [error] * len(now)
            for each, answer in zip(now, found, strict=True):
                _give(each.answer, answer)


def _give(waiting: asyncio.Future[Found], answer: Found | Exception) -> None:
    if waiting.done():
        return  # the client has gone
    if isinstance(answer, Exception):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)


def _found(view: TableView, table: str, keys: list[KeyValues]) -> _Answers:
    try:
        return [*view.get_many(table, keys).found]
    except WrongKey:
        return [_one(view, table, key) for key in keys]  # one key is wrong: the others still get their rows
    except Exception as error:  # noqa: BLE001 - raised where it is waited for
        return [error] * len(keys)


def _one(view: TableView, table: str, key: KeyValues) -> Found | Exception:
    try:
        return view.get(table, key)
    except Exception as error:  # noqa: BLE001 - raised where it is waited for
        return error
