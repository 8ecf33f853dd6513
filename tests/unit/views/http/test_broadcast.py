"""One reader of the journal for all who watch a table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest

from cdc.base.config.serve import ServeConfig
from cdc.base.web.tokens import Tokens
from cdc.views.query import broadcast
from cdc.views.query.broadcast import Broadcasts, EventBlock, position
from cdc.views.query.desk import Desk, Served, StoreTables
from cdc.views.store.memory import MemoryStore
from cdc.views.table.answers import Changes
from cdc.views.table.table_view import TableView
from tests.support.planted_view import STOCK, USERS, PlantedView, stock, users

Run: TypeAlias = Callable[[Callable[[Broadcasts, StoreTables], Awaitable[None]]], None]
LONG_S = 20.0


@pytest.fixture
def view() -> Iterator[PlantedView]:
    store = MemoryStore()
    yield PlantedView(store, [users(), stock()])
    store.close()


@pytest.fixture
def run(view: PlantedView, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a coroutine with the broadcasts of a process."""
    monkeypatch.setattr(broadcast, "REST_S", 0.0)

    def start(test: Callable[[Broadcasts, StoreTables], Awaitable[None]]) -> None:
        async def main() -> None:
            desk = Desk(Served(TableView(view.store), None, (), True), Tokens(None), ServeConfig())
            async with asyncio.timeout(LONG_S):
                await test(Broadcasts(desk), desk.parts[0])

        asyncio.run(main())

    return start


def now(part: StoreTables) -> str:
    return part.view.changes("", (USERS,)).token


def user(number: int, city: str = "x") -> dict[str, object]:
    return {"id": number, "name": "n", "city": city}


async def some(awaited: Awaitable[EventBlock | None]) -> EventBlock:
    piece = await awaited
    assert piece is not None
    return piece


def test_all_get_the_same_piece(view: PlantedView, run: Run) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)
        with broadcasts.joined(part, USERS, token) as one, broadcasts.joined(part, USERS, token) as other:
            assert one is other
            waiting = [asyncio.create_task(some(one.after(position(token), LONG_S))) for _ in range(3)]
            view.put(USERS, user(1, "Rome"))
            pieces = await asyncio.gather(*waiting)
        assert len({id(each) for each in pieces}) == 1
        assert pieces[0].events.count(b"event: row") == 1
        assert b'"city":"Rome"' in pieces[0].events
        assert pieces[0].events.startswith(b"id: " + pieces[0].token.encode())

    run(test)


def test_pieces_follow_one_another_without_a_gap(view: PlantedView, run: Run) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)
        seen: list[bytes] = []
        with broadcasts.joined(part, USERS, token) as shared:
            for number in range(20):
                view.put(USERS, user(number))
                view.put(STOCK, {"region": "x", "item": number, "amount": "1"})
                while b'"id":%d,' % number not in b"".join(seen):
                    piece = await some(shared.after(position(token), LONG_S))
                    assert piece.end > position(token)
                    token = piece.token
                    seen.append(piece.events)
        told = b"".join(seen)
        assert [told.count(b'"id":%d,' % number) for number in range(20)] == [1] * 20
        assert b"region" not in told

    run(test)


def test_silence_tells_how_far_it_reaches(view: PlantedView, run: Run) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)
        with broadcasts.joined(part, USERS, token) as shared:
            assert (await some(shared.after(position(token), 0.01))).events == b""
            view.put(STOCK, {"region": "x", "item": 1, "amount": "1"})
            reached = position(now(part))
            while (quiet := await some(shared.after(position(token), 0.01))).end < reached:
                assert quiet.events == b""
            assert (quiet.end, quiet.events) == (reached, b"")
            assert position(quiet.token) == reached

    run(test)


def test_who_is_too_far_behind_reads_for_itself(view: PlantedView, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "KEPT_BYTES", 1)

    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        late = token = now(part)
        with broadcasts.joined(part, USERS, token) as shared:
            for number in range(2):
                view.put(USERS, user(number))
                token = (await some(shared.after(position(token), LONG_S))).token
            assert await shared.after(position(late), LONG_S) is None
            assert not shared.is_over
            earlier = position(late)[0] - 1, 0
            assert await shared.after(earlier, LONG_S) is None

    run(test)


def test_who_knows_more_waits_for_more(view: PlantedView, run: Run) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)
        with broadcasts.joined(part, USERS, token) as shared:
            view.put(USERS, user(1))
            ahead = now(part)
            await some(shared.after(position(token), LONG_S))
            assert (await some(shared.after(position(ahead), 0.01))).events == b""

    run(test)


def test_a_reset_is_not_for_all(view: PlantedView, run: Run) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)
        with broadcasts.joined(part, USERS, token) as shared:
            view.reset(USERS)
            assert await shared.after(position(token), LONG_S) is None
            assert shared.is_over
            with broadcasts.joined(part, USERS, now(part)) as following:
                assert following is not shared

    run(test)


def test_a_reader_that_fails_lets_everybody_go(view: PlantedView, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)

        def stumble(*_: object) -> Changes:
            raise ZeroDivisionError

        with broadcasts.joined(part, USERS, token) as shared:
            monkeypatch.setattr(TableView, "changes", stumble)
            view.put(USERS, user(1))
            view.put(USERS, user(2))
            known = position(token)
            while (piece := await shared.after(known, LONG_S)) is not None:
                known = piece.end
            assert shared.is_over

    run(test)


def test_nobody_reads_for_nobody(view: PlantedView, run: Run) -> None:
    async def test(broadcasts: Broadcasts, part: StoreTables) -> None:
        token = now(part)
        with broadcasts.joined(part, USERS, token) as shared:
            await shared.after(position(token), 0.01)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=LONG_S) if others else None
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert shared.is_over
        with broadcasts.joined(part, USERS, token) as following:
            assert following is not shared

    run(test)
