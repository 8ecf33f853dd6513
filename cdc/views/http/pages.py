"""The pages of the service: path → page."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from cdc.base.lsn import LSN
from cdc.base.web.body import MAX_BODY, read_body
from cdc.base.web.hosts import Hosts
from cdc.base.web.problem import Headers, Problem
from cdc.base.web.tokens import EVERYTHING, Access
from cdc.views.http.published import PublishedMetrics, feed_waits
from cdc.views.http.tally import Page
from cdc.views.query import rows, tables
from cdc.views.query.answer import Answer, as_json
from cdc.views.query.broadcast import Broadcasts
from cdc.views.query.desk import AskedTable, Desk, ViewRequest
from cdc.views.query.keys import KeyValues, from_path, from_query
from cdc.views.query.openapi import document
from cdc.views.query.parameters import WAITING, Query, parse_query
from cdc.views.query.past import Past
from cdc.views.query.watch import Watch
from cdc.views.query.watching import Watching
from cdc.views.table.facts import TableFacts

GET: Final = ("GET", "HEAD")
POST: Final = ("POST",)

_ONE_ROW: Final = frozenset({*WAITING, "as_of"})
_PAGE: Final = frozenset({*WAITING, "prefix", "start", "stop", "limit", "after", "index.", "null.", "key", "as_of"})
_WAITING: Final = frozenset(WAITING)
_OPEN: Final = frozenset({b"live", b"ready"})
_ROUTES: Final = 1024
"""Tables whose route is remembered, as paths spell their names."""


class Call(NamedTuple):
    """A request in ASGI's form."""

    scope: Mapping[str, Any]
    receive: Any
    send: Any

    def query(self, route: Route) -> Query:
        """Parses the parameters; refuses those that the page does not take."""
        return parse_query(self.scope["query_string"], route.parameters)


Respond: TypeAlias = Callable[[Call, ViewRequest], Awaitable[Answer | None]]


class Route(NamedTuple):
    """The page that a path names.

    Attributes:
        page: the name under which requests are counted.
        respond: makes the answer; None when it was sent already.
        parameters: the parameters that the page takes.
        methods: the methods that the page takes.
        is_open: whether the page needs no token.
        is_brief: whether the page takes microseconds, unless a parameter makes it wait.
        row_here: makes the answer for a path without waiting, if there are no parameters; None if that is not possible.
        alias_of: the table that a short path stands for. Callers who may not read it get ``no-page``.
        is_known: whether the page exists.
    """

    page: Page
    respond: Respond
    parameters: frozenset[str] = frozenset()
    methods: tuple[str, ...] = GET
    is_open: bool = False
    is_brief: bool = False
    row_here: Callable[[bytes, ViewRequest], Answer] | None = None
    alias_of: str = ""
    is_known: bool = True


class Pages:
    """The pages of one process.

    Args:
        desk: the desk of the process.
        past: reads histories.
        published: what ``/metrics`` shows; watches are counted there.
        stopping: set when the service stops, so that watches end.
    """

    def __init__(self, desk: Desk, past: Past, published: PublishedMetrics, stopping: asyncio.Event) -> None:
        self._desk: Final = desk
        self._past: Final = past
        self._published: Final = published
        self._tally: Final = published.tally
        self._stopping: Final = stopping
        self._watches: Final[Counter[str]] = Counter()
        self._broadcasts: Final = Broadcasts(desk)
        self._hosts: Final = Hosts(desk.settings.host)
        self._row_of = lru_cache(maxsize=_ROUTES)(self._row_in)
        self._aliases = [(path.encode(), table) for path, table in desk.settings.table_of().items()]

    def access(self, route: Route, headers: Headers) -> Access:
        """Returns what the caller may read.

        Raises:
            Problem: ``no-token``, ``foreign-host`` or ``no-page``.
        """
        if route.is_open:
            return EVERYTHING
        if not self._desk.tokens.needed:
            self._hosts.check(headers)
        access = self._desk.tokens.access(headers)
        if not route.is_known or (route.alias_of and not access.may_read(route.alias_of)):
            raise Problem("no-page", "There is no such page. Begin with /v1/tables; /openapi.json describes all pages.")
        return access

    def route(self, path: bytes) -> Route:
        """Returns the page of a path, which is still percent-encoded.

        Raises:
            Problem: ``no-page``: the path is not UTF-8.
        """
        match path.split(b"/", 5):
            case [b"", b"v1", b"tables", table, b"rows", _]:
                return self._row_of(table)
            case [_, b"v1", b"tables", table, b"rows"]:
                return Route("rows", partial(self._rows, _text(table)), _PAGE)
            case [_, b"v1", b"tables", table, b"rows:batchGet"]:
                return Route("batch", partial(self._batch, _text(table)), _WAITING, POST)
            case [_, b"v1", b"tables", table, b"count"]:
                return Route("count", partial(self._count, _text(table)), _WAITING)
            case [_, b"v1", b"tables", table, b"watch"]:
                return Route("watch", partial(self._watch, _text(table)), methods=("GET",))
            case [_, b"v1", b"tables", table] if table:
                return Route("tables", partial(self._table, _text(table)))
            case [_, b"v1", b"tables"]:
                return Route("tables", self._tables)
            case [_, b"metrics"]:
                return Route("other", self._metrics)
            case [_, b"openapi.json"]:
                return Route("other", self._openapi)
            case [_, b"ready"]:
                return Route("other", self._ready, is_open=True)
            case [_, b"live"]:
                return Route("other", self._live, is_open=True)
        return self._alias(path)

    def _alias(self, path: bytes) -> Route:
        for alias, table in self._aliases:
            if path == alias:
                return Route("rows", partial(self._rows, table), _PAGE, alias_of=table)
            if path == alias + b"/count":
                return Route("other", partial(self._ambiguous, alias.decode(), table), alias_of=table)
            if path.startswith(alias + b"/"):
                return self._row(table, alias + b"/")._replace(alias_of=table)
        return Route("other", self._live, is_known=False)

    def _row_in(self, table: bytes) -> Route:
        return self._row(_text(table), b"/v1/tables/%b/rows/" % table)

    def _row(self, table: str, before_key: bytes) -> Route:
        here = partial(self._row_here, table, len(before_key)) if self._desk.is_local else None
        return Route("row", partial(self._by_path, table, len(before_key)), _ONE_ROW, is_brief=True, row_here=here)

    async def _by_path(self, name: str, key_at: int, call: Call, asked: ViewRequest) -> Answer:
        tail = call.scope["raw_path"][key_at:]
        if asked.query:
            asked.access.check(name)
            await self._desk.wait(name, asked.query)
        return await self._one(asked, name, lambda table: from_path(table, tail))

    def _row_here(self, name: str, key_at: int, path: bytes, asked: ViewRequest) -> Answer:
        tail = path[key_at:]
        return rows.row_here(self._desk, asked, name, lambda table: from_path(table, tail))

    async def _one(self, asked: ViewRequest, name: str, key_of: Callable[[TableFacts], KeyValues]) -> Answer:
        if (as_of := asked.query.get("as_of")) is None:
            return await rows.one_row(self._desk, asked, name, key_of)
        table = await self._desk.table(name, asked.access)
        key = key_of(table.known)
        shown = LSN(0 if table.facts.view is None else table.facts.view.lsn)
        then = await self._desk.slowest(partial(self._past.row, table.known, key, as_of, shown))
        return rows.past_row(table.known, key, then)

    async def _rows(self, name: str, _: Call, asked: ViewRequest) -> Answer:
        table = await self._fresh(name, asked)
        if (key := asked.query.get("key")) is None:
            if "as_of" in asked.query:
                raise Problem("bad-parameter", "as_of needs the key of one row. cdc snapshot writes whole tables.")
            return await rows.page(self._desk, asked, table)
        if others := asked.query.keys() - _ONE_ROW - {"key"}:
            raise Problem("bad-parameter", f"key asks for one row; leave out {', '.join(sorted(others))}.")
        return await self._one(asked, name, lambda known: from_query(known, key))

    async def _batch(self, name: str, call: Call, asked: ViewRequest) -> Answer:
        body = await read_body(call.scope, call.receive, MAX_BODY)
        return await rows.batch(self._desk, await self._fresh(name, asked), body)

    async def _count(self, name: str, _: Call, asked: ViewRequest) -> Answer:
        return await rows.count(self._desk, await self._fresh(name, asked))

    async def _fresh(self, name: str, asked: ViewRequest) -> AskedTable:
        """Returns the table, once it shows the commit that the caller wants to see."""
        asked.access.check(name)
        await self._desk.wait(name, asked.query)
        return await self._desk.table(name, asked.access)

    async def _table(self, name: str, _: Call, asked: ViewRequest) -> Answer:
        return await tables.one_table(self._desk, asked, name)

    async def _tables(self, _: Call, asked: ViewRequest) -> Answer:
        return await tables.all_tables(self._desk, asked)

    async def _live(self, _: Call, __: ViewRequest) -> Answer:
        return as_json({"live": True})

    async def _ready(self, _: Call, __: ViewRequest) -> Answer:
        return await tables.readiness(self._desk, feed_waits(self._published.more()))

    async def _metrics(self, _: Call, asked: ViewRequest) -> Answer:
        if not asked.access.metrics:
            raise Problem("not-allowed", f"The token {asked.access.name} may not read metrics: set metrics: true.")
        return await self._desk.slow(partial(self._published.page, [part.view for part in self._desk.parts]))

    async def _openapi(self, _: Call, asked: ViewRequest) -> Answer:
        aliases = {path: table for path, table in self._desk.settings.aliases.items() if asked.access.may_read(table)}
        return as_json(document(aliases))

    async def _ambiguous(self, alias: str, table: str, _: Call, asked: ViewRequest) -> Answer:
        asked.access.check(table)
        raise _ambiguous(alias, table)

    async def _watch(self, name: str, call: Call, asked: ViewRequest) -> Answer | None:
        table = await self._desk.table(name, asked.access)
        self._check_watches(asked.access)
        token = asked.header(b"last-event-id").decode("latin-1")
        watch = Watch(self._desk, self._broadcasts, table.part, table.known.name)
        told = self._while_allowed(watch.events(token), asked, name)
        watching = Watching(told, self._stopping, call.scope["abort"])
        began = time.perf_counter()
        self._watches[asked.access.name] += 1
        self._tally.watches(1)
        try:
            await watching.run(call.receive, call.send)
        finally:
            self._watches[asked.access.name] -= 1
            self._tally.watches(-1)
            self._tally.answered("watch", 200, time.perf_counter() - began)
        if watching.was_cut:
            self._tally.cut()
        return None

    def _check_watches(self, access: Access) -> None:
        if (count := self._watches.total()) >= self._desk.settings.max_watches:
            why = f"This process has {count} watches open (serve.max_watches). Try again, or add workers."
        elif access.watches is not None and (count := self._watches[access.name]) >= access.watches:
            why = f"The token {access.name} has {count} watches open here, and may have {access.watches}. Close one."
        else:
            return
        raise Problem("too-many-watches", why, [(b"retry-after", b"5")])

    async def _while_allowed(
        self, told: AsyncGenerator[bytes, None], asked: ViewRequest, name: str
    ) -> AsyncGenerator[bytes, None]:
        """Yields events until the caller's token is removed, or no longer names the table."""
        async with aclosing(told):
            async for each in told:
                self._desk.tokens.access(asked.headers).check(name)
                yield each


def _text(segment: bytes) -> str:
    try:
        return (unquote_to_bytes(segment) if b"%" in segment else segment).decode()
    except UnicodeDecodeError:
        raise Problem("no-page", "The table's name in the path is not UTF-8 when percent-decoded.") from None


def _ambiguous(alias: str, table: str) -> Problem:
    count, row = f"/v1/tables/{table}/count", f"/v1/tables/{table}/rows/count"
    links = f'<{count}>; rel="alternate", <{row}>; rel="alternate"'
    return Problem(
        "ambiguous",
        f"{alias}/count is the number of rows at {count}, or the row whose key is count at {row}. Ask for one of them.",
        [(b"link", links.encode("ascii", "replace"))],
        meanings={"number of rows": count, "row with the key count": row},
    )
