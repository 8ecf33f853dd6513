"""What every page needs to answer: the view, who may read it, how long it may take, who waits for its next commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from cdc.base.config.serve import ServeConfig
from cdc.base.daemon.threads import Threads
from cdc.base.errors import ConfigError
from cdc.base.lsn import LSN
from cdc.base.web.problem import Header, Headers, Problem
from cdc.base.web.tokens import Access, Tokens
from cdc.views.query.keys import KeyValues
from cdc.views.query.parameters import Query, WaitFor, wait_of
from cdc.views.query.readiness import missing
from cdc.views.query.together import RequestsTogether
from cdc.views.table.answers import Found
from cdc.views.table.errors import NotLoaded, WrongQuestion
from cdc.views.table.facts import Facts, TableFacts, ViewFacts
from cdc.views.table.table_view import TableView

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


Result = TypeVar("Result")

_THREADS: Final = 16
"""For reads that would hold up the others: pages, and a store that is asked over the network."""
_HISTORIES: Final = 4
"""Histories that are read at once. Each reads from Kafka, and goes on when nobody waits for it any more."""


class ViewRequest(NamedTuple):
    """A request.

    Attributes:
        access: what the caller may read.
        headers: of the request, names in lower case.
        query: checked parameters.
    """

    access: Access
    headers: Headers
    query: Query

    def header(self, name: bytes) -> bytes:
        """The first of that name; empty without one."""
        for key, value in self.headers:
            if key == name:
                return value
        return b""


class Served(NamedTuple):
    """What a service answers from.

    Attributes:
        tables: of a bridge; None when the view keeps none.
        topics: of other programs; None when the view keeps none.
        topic_names: which names are topics of the second.
        is_local: whether the stores are on this machine, so that looking up a key takes microseconds.
    """

    tables: TableView | None
    topics: TableView | None
    topic_names: Collection[str]
    is_local: bool


class StoreTables(NamedTuple):
    """One store's tables, and who waits for its next commit."""

    view: TableView
    pulse: Pulse


class AskedTable(NamedTuple):
    """A table that has rows to read, and where."""

    part: StoreTables
    known: TableFacts
    facts: Facts


class Desk:
    """Shared by the pages of one process, used in its event loop.

    Args:
        served: what is answered from.
        tokens: who may ask.
        settings: limits, and the aliases.
    """

    def __init__(self, served: Served, tokens: Tokens, settings: ServeConfig) -> None:
        self.tokens: Final = tokens
        self.settings: Final = settings
        self.is_local: Final = served.is_local
        self._topic_names = frozenset(served.topic_names)
        self._threads = Threads(_THREADS, "serve")
        self._histories = Threads(_HISTORIES, "history")
        self._tables = self._part(served.tables)
        self._topics = self._part(served.topics)
        self._together = RequestsTogether(self.slow)
        self._lately: dict[str, AskedTable] = {}
        self.parts: Final = [part for part in (self._tables, self._topics) if part is not None]

    def part(self, name: str) -> StoreTables:
        """Where the table of that name is, or would be.

        Raises:
            ConfigError: the view keeps nothing.
        """
        chosen = self._topics if name in self._topic_names else self._tables
        if (part := chosen or self._tables or self._topics) is None:
            raise ConfigError("the view keeps neither tables nor topics", remedy="set view.tables or view.topics")
        return part

    async def quick(self, read: Callable[[], Result]) -> Result:
        """A read of microseconds, where the store is local; it is not worth a thread then."""
        return read() if self.is_local else await self.slow(read)

    async def slow(self, read: Callable[[], Result]) -> Result:
        """A read that may take milliseconds or more, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def slowest(self, read: Callable[[], Result]) -> Result:
        """A read that may take seconds, in one of few threads: the others keep answering."""
        return await asyncio.get_running_loop().run_in_executor(self._histories, read)

    async def facts(self) -> list[Facts]:
        """Of each store, now."""
        return [await self.quick(part.view.facts) for part in self.parts]

    async def table(self, name: str, access: Access) -> AskedTable:
        """A table to read from.

        Raises:
            Problem: ``not-allowed``, ``unknown-table`` or ``not-ready``.
        """
        access.check(name)
        part = self.part(name)
        facts = await self.quick(part.view.facts)
        known = facts.tables.get(name)
        if known is None or not known.is_shown:
            raise missing(await self.facts(), name, access, time.time())
        return AskedTable(part, known, facts)

    async def look_up(
        self, name: str, access: Access, key_of: Callable[[TableFacts], KeyValues]
    ) -> tuple[TableFacts, KeyValues, Found]:
        """The row of a key: one read of the store, as long as nothing was committed since the last look at its facts.

        Raises:
            Problem: as ``table``, and what ``key_of`` raises.
        """
        if (lately := self._lately.get(name)) is not None and access.may_read(name):
            with suppress(Problem, WrongQuestion, NotLoaded):  # it may be another table by now: look again
                key = key_of(lately.known)
                found = await self._get(lately.part.view, name, key)
                if found.evidence.version == lately.facts.version:
                    return lately.known, key, found
        table = self._lately[name] = await self.table(name, access)
        key = key_of(table.known)
        return table.known, key, await self._get(table.part.view, name, key)

    async def _get(self, view: TableView, name: str, key: KeyValues) -> Found:
        return view.get(name, key) if self.is_local else await self._together.get(view, name, key)

    async def wait(self, name: str, query: Query) -> None:
        """Until the view shows the commit that the query names, if it names one.

        Raises:
            Problem: ``bad-parameter``, ``other-source`` or ``not-yet``.
        """
        wanted = wait_of(query, self.settings.request_timeout_s)
        if wanted is None:
            return
        part = self.part(name)
        ends_at = time.monotonic() + wanted.timeout_s
        while True:
            facts = await self.quick(part.view.facts)
            view = facts.view
            if view is not None and view.feed != "deployment":
                raise Problem("bad-parameter", "min_lsn means nothing here: the topics of this view have no LSNs.")
            if view is not None and view.source:  # or nothing is shown yet
                if wanted.source and wanted.source != view.source:
                    raise _other_source(view, wanted, wanted.source)
                if wanted.timeline and wanted.timeline < view.timeline:
                    raise _other_source(view, wanted, f"timeline {wanted.timeline}")
                # Of an earlier timeline, greater LSNs say nothing: the server that has them may have lost the commit.
                if wanted.timeline <= view.timeline and facts.reached(name) >= wanted.lsn:
                    return
            left_s = ends_at - time.monotonic()
            if left_s <= 0 or not await part.pulse.beyond(facts.version, left_s):
                raise _not_yet(facts, name, wanted, time.time())

    def _part(self, view: TableView | None) -> StoreTables | None:
        return None if view is None else StoreTables(view, Pulse(lambda: self.quick(view.version)))


def _other_source(view: ViewFacts, wanted: WaitFor, told: str) -> Problem:
    return Problem(
        "other-source",
        f"{wanted.lsn} is of {told}, and the view follows {view.source} (system identifier, timeline, database): "
        "after a failover or a restore, LSNs of before say nothing. Ask the source for its LSN again.",
        _lsn_header(view.position),
        source=view.source,
    )


def _not_yet(facts: Facts, name: str, wanted: WaitFor, now: float) -> Problem:
    view, known, lsn = facts.view, facts.tables.get(name), facts.reached(name)
    age_s = None if view is None or not view.caught_up_at else max(now - view.caught_up_at, 0)
    if known is not None and known.is_shown and not known.is_current:
        why = f"{name} is {known.state}, so its rows may be older: {known.reason}."
    elif view is not None and view.source and wanted.timeline > view.timeline:
        why = f"The view still follows timeline {view.timeline}: the bridge has published nothing of the new one yet."
    elif age_s is not None and age_s <= max(wanted.timeout_s, 1):
        why = (
            f"The topics held no more {age_s:.1f} s ago: the bridge has not published it yet, "
            "or the LSN is not one of this server."
        )
    else:
        why = "The view is behind its topics; Cdc-Age says how far." if age_s is not None else "The view is loading."
    return Problem(
        "not-yet",
        f"After {wanted.timeout_s:g} s the view shows {f'everything before {lsn}' if lsn else 'no LSN'}, "
        f"not {wanted.lsn}. {why}",
        [(b"retry-after", b"1"), *_lsn_header(lsn)],
        lsn=str(lsn) if lsn else None,
    )


def _lsn_header(lsn: LSN) -> list[Header]:
    return [(b"cdc-lsn", str(lsn).encode())] if lsn else []
