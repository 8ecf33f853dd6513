"""``cdc serve`` as a whole: this process fills the view, and other processes answer from it.

They open their store at the first question. If its server is away then, that question gets a 503, and the process goes
on. They read the feed's part of ``/metrics`` from memory that all of them share.
"""

from __future__ import annotations

import asyncio
import faulthandler
import ipaddress
import multiprocessing
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from prometheus_client.exposition import generate_latest

from cdc.base.config import Config
from cdc.base.config.serve import ServeConfig
from cdc.base.daemon.logs import configure
from cdc.base.daemon.pages import Pages as DaemonPages
from cdc.base.daemon.wait_log import WaitLog
from cdc.base.daemon.worker import Worker
from cdc.base.errors import ConfigError, StoreRefused
from cdc.base.metrics import SlotMetrics
from cdc.base.web.certificate import Certificate
from cdc.base.web.tokens import Tokens
from cdc.bridge.source.slot_meter import SlotMeter
from cdc.bridge.source.slot_watch import slot_watch
from cdc.contract.naming import progress_topic
from cdc.kafka.replay.pulse import BrokerPulse
from cdc.views.feed.meter import FeedMeter
from cdc.views.feed.run import run_feeds
from cdc.views.feed.stores import TABLES, TOPICS, ViewStores, wanted_view
from cdc.views.http.application import Service
from cdc.views.http.beside import Beside
from cdc.views.http.children import LONGEST_STOP_S, Children, answer_as_child
from cdc.views.http.http import Server
from cdc.views.http.listening import ServerThread, listen, url_of
from cdc.views.http.pages import Pages
from cdc.views.http.published import PublishedMetrics
from cdc.views.http.tally import SharedCells, Tally, shared_cells
from cdc.views.query.desk import Desk, Served
from cdc.views.query.past import Past
from cdc.views.store.open import MEMORY
from cdc.views.store.port import Answer, Store, StoreSize, StoreSnapshot, Transaction
from cdc.views.table.table_view import TableView

REFRESH_S: Final = 2
"""How often to look at the file of tokens and at the certificate."""


OpenPages: TypeAlias = Callable[[Config, Callable[[], bytes]], AbstractContextManager[DaemonPages]]
"""Opens pages to show beside the service's own, from the configuration and a function that returns ``/metrics``."""


def make_server(
    config: Config,
    served: Served,
    tally: Tally,
    more_metrics: Callable[[], bytes],
    open_pages: OpenPages | None = None,
) -> Server:
    """Makes a server for the running event loop.

    Args:
        config: of the whole deployment; histories are read with it.
        served: the views to answer from.
        tally: the counts of this process.
        more_metrics: returns metrics to add to ``/metrics``, in Prometheus's format.
        open_pages: opens the pages that are shown at ``/``.

    Raises:
        ConfigError: the file of tokens is wrong.
    """
    settings = config.serve
    tokens = Tokens(None if settings.tokens_file is None else Path(settings.tokens_file))
    desk = Desk(served, tokens, settings)
    stopping = asyncio.Event()
    published = PublishedMetrics(tally, more_metrics)
    service = Service(desk, Pages(desk, Past(config), published, stopping), tally)
    app = service.app()
    if open_pages is not None:
        views = [part.view for part in desk.parts]
        app = Beside(app, open_pages(config, lambda: published.page(views).body), stopping)

    has_tls = settings.tls_cert is not None and settings.tls_key is not None
    certificate = Certificate(settings.tls_cert or "", settings.tls_key or "") if has_tls else None

    async def refresh() -> None:
        tokens.refresh()
        if certificate is not None and (context := server.config.ssl) is not None:
            certificate.refresh(context)

    server = Server(app, service.at_once, settings, stopping, refresh, REFRESH_S)
    return server


class OpenedWhenAsked:
    """A ``Store`` for readers that is opened at the first question.

    Args:
        open_store: opens the store.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._opened: Store | None = None
        self._guard = threading.Lock()

    def lock(self) -> bool:
        """Refuses: this store is only read."""
        raise StoreRefused(
            "this store was opened for reading only",
            remedy="let the process that fills the view write: cdc serve without --no-feed",
        )

    def begin(self) -> Transaction:
        """Refuses: this store is only read."""
        raise StoreRefused(
            "this store was opened for reading only",
            remedy="let the process that fills the view write: cdc serve without --no-feed",
        )

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """Runs a query on the store."""
        return self._store().read(query)

    def version(self) -> int:
        """Returns the version of the store."""
        return self._store().version()

    def size(self) -> StoreSize:
        """Returns the size of the store."""
        return self._store().size()

    def close(self) -> None:
        """Closes the store if it was opened."""
        with self._guard:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _store(self) -> Store:
        if self._opened is None:
            with self._guard:
                if self._opened is None:
                    self._opened = self._open_store()
        return self._opened


_SIZE: Final = 256 * 1024
"""Bytes of metrics: enough for some thousand tables. A longer text is not shown."""
_TRIES: Final = 3


class SharedNotice(NamedTuple):
    """The shared memory of a notice. It may be passed to a spawned process."""

    text: Any
    marks: Any


def shared_notice() -> SharedNotice:
    """Makes an empty notice."""
    context = multiprocessing.get_context("spawn")
    return SharedNotice(context.RawArray("c", _SIZE), context.RawArray("q", 2))


class Notice:
    """A text in shared memory, written by one process and read by all.

    There is no lock, because a process that is killed would keep it. A reader checks whether the text was written
    meanwhile: the first mark counts up before and after each write, and is odd in between.

    Args:
        shared: the memory.
    """

    def __init__(self, shared: SharedNotice) -> None:
        self._text = memoryview(shared.text).cast("B")
        self._marks = shared.marks

    def write(self, text: bytes) -> None:
        """Replaces the text. Only one process may write."""
        if len(text) > _SIZE:
            text = b""
        self._marks[0] += 1
        self._text[: len(text)] = text
        self._marks[1] = len(text)
        self._marks[0] += 1

    def read(self) -> bytes:
        """Reads the text; empty if it is being written at each attempt."""
        for _ in range(_TRIES):
            before = self._marks[0]
            text = bytes(self._text[: self._marks[1]])
            if before % 2 == 0 and self._marks[0] == before:
                return text
        return b""


_SENT: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which somebody ends a process. By others (SIGBUS, SIGSEGV, …) the machine does."""

log = structlog.get_logger("cdc.serve")


class Shared(NamedTuple):
    """What the processes of a service share. It may be passed to a spawned process."""

    config: Config
    log_level: str
    listening: socket.socket
    cells: SharedCells
    notice: SharedNotice
    open_pages: OpenPages | None


def run_service(
    config: Config,
    stop: threading.Event,
    log_level: str = "info",
    *,
    feeds: bool = True,
    open_pages: OpenPages | None = None,
) -> None:
    """Answers until ``stop`` is set, which also happens when a feed cannot go on.

    Args:
        config: with a ``view`` section.
        stop: ends the service.
        log_level: the log level of the serving processes.
        feeds: whether to fill the view here; otherwise another process does.
        open_pages: opens the pages at ``/``. It must be importable by name, because processes are spawned.

    Raises:
        CdcError: the operator must act.
    """
    view, settings = wanted_view(config), config.serve
    in_memory = view.store == MEMORY
    check(settings, in_memory=in_memory, feeds=feeds)
    _tell_crashes()
    with closing(listen(settings)) as listening, ExitStack() as beside:
        count = 1 if in_memory else settings.workers
        shared = Shared(config, log_level, listening, shared_cells(count), shared_notice(), open_pages)
        meter, stores = FeedMeter(), ViewStores(config)
        tell = partial(_tell, Notice(shared.notice), meter)
        answering = _Here(shared, stores, tell) if in_memory else _There(shared, count, tell, stores)
        worker = Worker(partial(answering.run, stop), name="serve", on_failure=stop.set)
        worker.start()
        beside.enter_context(WaitLog(stop))
        beside.enter_context(slot_watch(config, SlotMeter(SlotMetrics(meter.metrics.registry)), stop))
        if feeds:
            beside.enter_context(BrokerPulse(config.kafka.client_options(), progress_topic(config.name), stop))
        log.info("serving", url=url_of(listening, settings), processes=count)
        try:
            run_feeds(config, stop, stores, meter) if feeds else stop.wait()
        finally:
            stop.set()
            worker.join()
        worker.check()


def check(settings: ServeConfig, *, in_memory: bool, feeds: bool) -> None:
    """Finds errors that serving processes would otherwise report, where nobody sees them.

    Raises:
        ConfigError: names the option.
    """
    if in_memory and (settings.workers > 1 or not feeds):
        raise ConfigError(
            "a store in memory belongs to one process, which fills it and answers from it",
            remedy="set serve.workers: 1 and leave out --no-feed, or name a folder or a Redis server in view.store",
        )
    Tokens(None if settings.tokens_file is None else Path(settings.tokens_file))
    if settings.tls_cert is not None and settings.tls_key is not None:
        Certificate(settings.tls_cert, settings.tls_key).check()
    if settings.tokens_file is None and not _is_loopback(settings.host):
        log.warning(
            "anybody who can reach the port can read every table", host=settings.host, remedy="set serve.tokens_file"
        )


def served_of(config: Config, stores: ViewStores) -> Served:
    """Opens the parts of the view that the configuration wants, for reading."""
    view = wanted_view(config)

    def part(name: str) -> TableView:
        return TableView(OpenedWhenAsked(partial(stores.open, name, read_only=True)))

    tables = part(TABLES) if view.tables else None
    topics = part(TOPICS) if view.topics else None
    return Served(tables, topics, frozenset(view.topics), is_local=not view.is_redis)


def answer(shared: Shared, number: int) -> None:
    """Runs one serving process; ``Children`` starts it."""
    configure(shared.log_level, shared.config.secrets())
    _tell_crashes()
    served = served_of(shared.config, ViewStores(shared.config))
    answer_as_child(partial(_server, shared, served, number), shared.listening)


def _tell_crashes() -> None:
    """Makes a crash leave a traceback, for example the SIGBUS after reading past the end of a mapped file."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__, all_threads=False)


def _server(shared: Shared, served: Served, number: int) -> Server:
    return make_server(
        shared.config, served, Tally(shared.cells, number), Notice(shared.notice).read, shared.open_pages
    )


def _tell(notice: Notice, meter: FeedMeter) -> None:
    notice.write(generate_latest(meter.metrics.registry))


class _There:
    """Serves in other processes."""

    def __init__(self, shared: Shared, count: int, tell: Callable[[], None], stores: ViewStores) -> None:
        self._children = Children(answer, lambda number: (shared, number), count, self._look_through)
        self._tell = tell
        self._stores = stores

    def _look_through(self, number: int) -> None:
        """Checks the stores after a crash: damaged data must not be read again, and may be what caused it."""
        if number not in _SENT:
            self._stores.look_through()

    def run(self, stop: threading.Event) -> None:
        self._children.run(stop, self._tell)


class _Here:
    """Serves in this process."""

    def __init__(self, shared: Shared, stores: ViewStores, tell: Callable[[], None]) -> None:
        self._thread = ServerThread(partial(_server, shared, served_of(shared.config, stores), 0), shared.listening)
        self._tell = tell

    def run(self, stop: threading.Event) -> None:
        worker = Worker(self._thread.run, name="http", on_failure=stop.set)
        worker.start()
        while not stop.wait(1.0):
            self._tell()
        self._thread.stop()
        if not worker.ended_within(LONGEST_STOP_S):
            log.error(
                "the HTTP server did not end in time: going on without it",
                limit_s=LONGEST_STOP_S,
                remedy="leave it: the process ends without it; a client that does not read held it up",
            )
        worker.check()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
