"""What every page needs to answer: the view, who may read it, how long it may take, and waiting for its next commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

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
"""Pause between two looks at the version. A read that waits for a commit waits at most this much longer, and a look
costs microseconds."""


class Pulse:
    """Looks at the store's version while somebody waits for a commit, and not otherwise. Belongs to one event loop.

    Args:
        version: asks the store for its version.
    """

    def __init__(self, version: Callable[[], Awaitable[int]]) -> None:
        self._version = version
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._looking: asyncio.Task[None] | None = None

    async def beyond(self, version: int, timeout_s: float) -> bool:
        """Waits until the store's version differs from ``version``; returns False when the time is up.

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
                except Exception as error:  # noqa: BLE001 - raised in the callers that wait
                    self._fail(error)
                    return
                for waits, version in self._waiting.items():
                    # Not only a greater version: a store that lost commits or was made anew may have a smaller one.
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
"""Threads for reads that would hold up other requests: pages, and a store that is asked over the network."""
_HISTORIES: Final = 4
"""Histories that are read at once. Each reads from Kafka, and does not stop when its client goes away."""


class ViewRequest(NamedTuple):
    """A request that was checked.

    Attributes:
        access: what the caller may read.
        headers: the headers of the request, names in lower case.
        query: the checked parameters.
    """

    access: Access
    headers: Headers
    query: Query

    def header(self, name: bytes) -> bytes:
        """Returns the first header with this name; empty if there is none."""
        for key, value in self.headers:
            if key == name:
                return value
        return b""


class Served(NamedTuple):
    """The views that a service answers from.

    Attributes:
        tables: the tables of a bridge; None when the view keeps none.
        topics: topics of other programs; None when the view keeps none.
        topic_names: the names that belong to ``topics``.
        is_local: whether the stores are on this machine, so that looking up a key takes microseconds.
    """

    tables: TableView | None
    topics: TableView | None
    topic_names: Collection[str]
    is_local: bool


class StoreTables(NamedTuple):
    """The tables of one store, and the pulse for waiting for its next commit."""

    view: TableView
    pulse: Pulse


class AskedTable(NamedTuple):
    """A table that has rows to read, its store, and the facts of that moment."""

    part: StoreTables
    known: TableFacts
    facts: Facts


class LookedUp(NamedTuple):
    """What the store has of a key, and the table that told how to read the key."""

    known: TableFacts
    key: KeyValues
    found: Found


KeyOf: TypeAlias = Callable[[TableFacts], KeyValues]
"""Reads the key that a request spells, for a table."""


def without_waiting(answering: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine that never waits. A task in the event loop would cost as much as the answer itself."""
    try:
        answering.send(None)
    except StopIteration as done:
        return cast(Result, done.value)
    answering.close()
    raise AssertionError("something that must not wait waited")


class Desk:
    """What the pages of one process share. Use it in the event loop of the process.

    Args:
        served: the views to answer from.
        tokens: who may ask.
        settings: the limits, and the aliases.
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
        """Returns the store that has the table of that name, or would have it.

        Raises:
            ConfigError: the view keeps nothing.
        """
        chosen = self._topics if name in self._topic_names else self._tables
        if (part := chosen or self._tables or self._topics) is None:
            raise ConfigError("the view keeps neither tables nor topics", remedy="set view.tables or view.topics")
        return part

    async def quick(self, read: Callable[[], Result]) -> Result:
        """Runs a read that takes microseconds on a local store, which is not worth a thread; otherwise in a thread."""
        return read() if self.is_local else await self.slow(read)

    async def slow(self, read: Callable[[], Result]) -> Result:
        """Runs a read that may take milliseconds or more, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def slowest(self, read: Callable[[], Result]) -> Result:
        """Runs a read that may take seconds, in one of a few threads of its own, so that others keep answering."""
        return await asyncio.get_running_loop().run_in_executor(self._histories, read)

    async def facts(self) -> list[Facts]:
        """Returns the present facts of each store."""
        return [await self.quick(part.view.facts) for part in self.parts]

    async def table(self, name: str, access: Access) -> AskedTable:
        """Returns a table that has rows to read.

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

    def table_here(self, name: str, access: Access) -> AskedTable:
        """Returns a table of a local store; raises as ``table``."""
        return without_waiting(self.table(name, access))

    def look_up_here(self, name: str, access: Access, key_of: KeyOf) -> LookedUp:
        """Looks up the row of a key in a local store. This takes one read of the store if nothing was committed since
        the last one.

        Raises:
            Problem: as ``table``, and as ``key_of``.
        """
        if (lately := self._lately.get(name)) is not None and access.may_read(name):
            try:
                key = key_of(lately.known)
                found = lately.part.view.get(name, key)
                if found.evidence.version == lately.facts.version:
                    return LookedUp(lately.known, key, found)
            except (Problem, WrongQuestion, NotLoaded):
                pass  # the table may have changed since: look again
        table = self._lately[name] = self.table_here(name, access)
        key = key_of(table.known)
        return LookedUp(table.known, key, table.part.view.get(name, key))

    async def look_up(self, name: str, access: Access, key_of: KeyOf) -> LookedUp:
        """Looks up the row of a key in a store over the network, as ``look_up_here`` does."""
        if (lately := self._lately.get(name)) is not None and access.may_read(name):
            with suppress(Problem, WrongQuestion, NotLoaded):  # the table may have changed since: look again
                key = key_of(lately.known)
                found = await self._together.get(lately.part.view, name, key)
                if found.evidence.version == lately.facts.version:
                    return LookedUp(lately.known, key, found)
        table = self._lately[name] = await self.table(name, access)
        key = key_of(table.known)
        return LookedUp(table.known, key, await self._together.get(table.part.view, name, key))

    async def wait(self, name: str, query: Query) -> None:
        """Waits until the view shows the commit that the query names, if it names one.

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
            if view is not None and view.source:  # otherwise nothing is shown yet: wait
                if wanted.source and wanted.source != view.source:
                    raise _other_source(view, wanted, wanted.source)
                if wanted.timeline and wanted.timeline < view.timeline:
                    raise _other_source(view, wanted, f"timeline {wanted.timeline}")
                # A greater LSN of an earlier timeline proves nothing: that server may have lost the commit.
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
        f"{wanted.lsn} belongs to {told}, but the view follows {view.source} (system identifier, timeline, database): "
        "after a failover or a restore, earlier LSNs mean nothing. Ask the source for its LSN again.",
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
            f"{age_s:.1f} s ago the view showed everything in its topics: the bridge has not published this commit "
            "yet, or the LSN is from another server."
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
