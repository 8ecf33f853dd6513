"""One question to a store for many requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cdc.views.query import together
from cdc.views.query.together import RequestsTogether
from cdc.views.store.memory import MemoryStore
from cdc.views.table.answers import Found, FoundMany
from cdc.views.table.errors import UnknownTable, WrongKey
from cdc.views.table.table_view import TableView
from tests.support.planted_view import STOCK, USERS, PlantedView, stock, users


class Asked(TableView):
    """Remembers each question, and answers when it may."""

    def __init__(self, view: PlantedView) -> None:
        super().__init__(view.store)
        self.questions: list[tuple[str, int]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def get_many(self, table: str, keys: Sequence[Any]) -> FoundMany:
        self.questions.append((table, len(keys)))
        assert self.may_answer.wait(20)
        return super().get_many(table, keys)


@pytest.fixture
def view() -> Asked:
    planted = PlantedView(MemoryStore(), [users(), stock()])
    planted.put(USERS, *({"id": number, "name": f"n{number}", "city": "x"} for number in range(100)))
    planted.put(STOCK, {"region": "eu", "item": 1, "amount": "1"})
    return Asked(planted)


def run(test: Callable[[RequestsTogether], Any]) -> Any:
    async def in_thread(work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work)

    async def main() -> Any:
        async with asyncio.timeout(20):
            return await test(RequestsTogether(in_thread))

    return asyncio.run(main())


def name(found: Found) -> bytes:
    assert found.row is not None
    return found.row.row


def test_those_who_come_meanwhile_share_a_question(view: Asked) -> None:
    async def test(both: RequestsTogether) -> list[Found]:
        first = asyncio.ensure_future(both.get(view, USERS, (0,)))
        view.may_answer.clear()
        while not view.questions:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(both.get(view, USERS, (1,)))
        while len(view.questions) < 2:
            await asyncio.sleep(0)
        rest = [asyncio.ensure_future(both.get(view, USERS, (number,))) for number in range(2, 50)]
        await asyncio.sleep(0)
        view.may_answer.set()
        return list(await asyncio.gather(first, second, *rest))

    found = run(test)
    assert [name(each) for each in found] == [b'{"id":%d,"name":"n%d","city":"x"}' % (n, n) for n in range(50)]
    assert view.questions == [(USERS, 1), (USERS, 1), (USERS, 48)]
    assert len({each.evidence for each in found}) == 1


def test_a_question_has_a_bound(view: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MOST", 10)

    async def test(both: RequestsTogether) -> list[Found]:
        return list(await asyncio.gather(*(both.get(view, USERS, (number,)) for number in range(95))))

    assert len(run(test)) == 95
    assert max(size for _, size in view.questions) == 10
    assert sum(size for _, size in view.questions) == 95


def test_a_wrong_key_is_its_own_fault(view: Asked) -> None:
    async def test(both: RequestsTogether) -> list[Found | BaseException]:
        keys: list[tuple[Any, ...]] = [(1,), (1, 2), (3,)]
        return list(await asyncio.gather(*(both.get(view, USERS, key) for key in keys), return_exceptions=True))

    first, wrong, third = run(test)
    assert (name(first), name(third)) == (b'{"id":1,"name":"n1","city":"x"}', b'{"id":3,"name":"n3","city":"x"}')
    assert isinstance(wrong, WrongKey)


def test_tables_and_those_that_are_none(view: Asked) -> None:
    async def test(both: RequestsTogether) -> list[Found | BaseException]:
        asked = [both.get(view, STOCK, ("eu", 1)), both.get(view, "public.none", (1,)), both.get(view, USERS, (7,))]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    stocked, missing, found = run(test)
    assert name(stocked) == b'{"region":"eu","item":1,"amount":"1"}'
    assert isinstance(missing, UnknownTable)
    assert name(found) == b'{"id":7,"name":"n7","city":"x"}'


def test_who_goes_away_does_not_harm_the_others(view: Asked) -> None:
    async def test(both: RequestsTogether) -> Found:
        gone, *_, left = [asyncio.ensure_future(both.get(view, USERS, (number,))) for number in range(5)]
        await asyncio.sleep(0)
        gone.cancel()
        return await left

    assert name(run(test)) == b'{"id":4,"name":"n4","city":"x"}'


def test_threads_that_are_no_more(view: Asked) -> None:
    async def refuse(_: object) -> Any:
        raise RuntimeError("cannot schedule new futures after shutdown")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="after shutdown"):
            await RequestsTogether(refuse).get(view, USERS, (1,))

    asyncio.run(main())
