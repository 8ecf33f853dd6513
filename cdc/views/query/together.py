"""Keys that are looked up together, where a store is asked over the network: one question for many requests.

A request that comes alone is asked for at once. Those who come while questions are under way share the next one, so the
more there are, the less each of them costs. All rows of one question, and their evidence, are of one moment.
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
"""Questions under way: the server answers one while we write down the answers of another."""
_MOST: Final = 256
"""Keys of one question: it takes the server below a millisecond, in which it does nothing else."""


class _Wanted(NamedTuple):
    key: KeyValues
    answer: asyncio.Future[Found]


_Table: TypeAlias = tuple[TableView, str]
_Answers: TypeAlias = list[Found | Exception]


class RequestsTogether:
    """For one event loop.

    Args:
        in_thread: runs what blocks.
    """

    def __init__(self, in_thread: Callable[[Callable[[], _Answers]], Awaitable[_Answers]]) -> None:
        self._in_thread = in_thread
        self._wanted: dict[_Table, list[_Wanted]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def get(self, view: TableView, table: str, key: KeyValues) -> Found:
        """As ``TableView.get``."""
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
            now, later = wanted[:_MOST], wanted[_MOST:]
            del self._wanted[table]
            if later:
                self._wanted[table] = later  # behind the other tables
            try:
                found = await self._in_thread(partial(_found, *table, [each.key for each in now]))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                found = [error] * len(now)
            for each, answer in zip(now, found, strict=True):
                _give(each.answer, answer)


def _give(waiting: asyncio.Future[Found], answer: Found | Exception) -> None:
    if waiting.done():
        return  # who asked is gone
    if isinstance(answer, Exception):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)


def _found(view: TableView, table: str, keys: list[KeyValues]) -> _Answers:
    try:
        return [*view.get_many(table, keys).found]
    except WrongKey:
        return [_one(view, table, key) for key in keys]  # one of them; the others are to have their rows
    except Exception as error:  # noqa: BLE001 - raised where it is waited for
        return [error] * len(keys)


def _one(view: TableView, table: str, key: KeyValues) -> Found | Exception:
    try:
        return view.get(table, key)
    except Exception as error:  # noqa: BLE001 - raised where it is waited for
        return error
