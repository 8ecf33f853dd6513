"""``cdc serve``, put together: the view is filled in this process, and others answer from it.

The others open their store when the first question comes: a server that is away then is an answer, and no reason to
end. What the feed has to say in ``/metrics`` they read from memory that all of them share.
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

_REFRESH_S: Final = 2
"""Between two looks at the file of tokens, and at the certificate."""


OpenPages: TypeAlias = Callable[[Config, Callable[[], bytes]], AbstractContextManager[DaemonPages]]
"""Makes pages that are shown beside the service's own, of the configuration and of what ``/metrics`` says."""


def make_server(
    config: Config,
    served: Served,
    tally: Tally,
    more_metrics: Callable[[], bytes],
    open_pages: OpenPages | None = None,
) -> Server:
    """A server for the event loop that runs now.

    Args:
        config: of the whole deployment; histories are read with it.
        served: what is asked.
        tally: of this process.
        more_metrics: what ``/metrics`` shows beside its own, as Prometheus reads it.
        open_pages: what is shown at ``/``.

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

    server = Server(app, service.at_once, settings, stopping, refresh, _REFRESH_S)
    return server


class OpenedWhenAsked:
    """``Store``, as far as readers need it.

    Args:
        open_store: opens the store that is asked.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._opened: Store | None = None
        self._guard = threading.Lock()

    def lock(self) -> bool:
        """As ``Store.lock``, which this one refuses."""
        raise StoreRefused(
            "this store was opened for reading only",
            remedy="let the process that fills the view write: cdc serve without --no-feed",
        )

    def begin(self) -> Transaction:
        """As ``Store.begin``, which this one refuses."""
        raise StoreRefused(
            "this store was opened for reading only",
            remedy="let the process that fills the view write: cdc serve without --no-feed",
        )

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """As ``Store.read``."""
        return self._store().read(query)

    def version(self) -> int:
        """As ``Store.version``."""
        return self._store().version()

    def size(self) -> StoreSize:
        """As ``Store.size``."""
        return self._store().size()

    def close(self) -> None:
        """As ``Store.close``."""
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
"""Bytes: some thousand tables. What is longer is not shown."""
_TRIES: Final = 3


class SharedNotice(NamedTuple):
    """The memory. It may be handed to a process that is spawned."""

    text: Any
    marks: Any


def shared_notice() -> SharedNotice:
    """An empty one."""
    context = multiprocessing.get_context("spawn")
    return SharedNotice(context.RawArray("c", _SIZE), context.RawArray("q", 2))


class Notice:
    """No lock: a process that is killed would keep it. The reader looks whether it was written meanwhile.

    Args:
        shared: the memory.
    """

    def __init__(self, shared: SharedNotice) -> None:
        self._text = memoryview(shared.text).cast("B")
        self._marks = shared.marks

    def write(self, text: bytes) -> None:
        """Put a text in the place of the one before; by one process only."""
        if len(text) > _SIZE:
            text = b""
        self._marks[0] += 1
        self._text[: len(text)] = text
        self._marks[1] = len(text)
        self._marks[0] += 1

    def read(self) -> bytes:
        """The text; nothing when it is being written again and again."""
        for _ in range(_TRIES):
            before = self._marks[0]
            text = bytes(self._text[: self._marks[1]])
            if before % 2 == 0 and self._marks[0] == before:
                return text
        return b""


_SENT: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""By these somebody ends a process; by others (SIGBUS, SIGSEGV, …) the machine does."""

log = structlog.get_logger("cdc.serve")


class Shared(NamedTuple):
    """What the processes of a service share. It may be handed to a process that is spawned."""

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
    """Answer until ``stop`` is set, which also happens when a feed cannot go on.

    Args:
        config: with a ``view`` section.
        stop: ends it.
        log_level: of the processes that answer.
        feeds: fill the view, too; otherwise another process does.
        open_pages: what is shown at ``/``; found by its name in its module, for processes are started afresh.

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
    """What would otherwise be found out by processes that nobody looks at.

    Raises:
        ConfigError: names the option.
    """
    if in_memory and (settings.workers > 1 or not feeds):
        raise ConfigError(
            "a store in memory is in one process, which fills it and answers from it",
            remedy="set serve.workers: 1 and leave --no-feed out, or name a folder or a Redis server in view.store",
        )
    Tokens(None if settings.tokens_file is None else Path(settings.tokens_file))
    if settings.tls_cert is not None and settings.tls_key is not None:
        Certificate(settings.tls_cert, settings.tls_key).check()
    if settings.tokens_file is None and not _is_loopback(settings.host):
        log.warning("everybody who reaches the port reads everything", host=settings.host, remedy="serve.tokens_file")


def served_of(config: Config, stores: ViewStores) -> Served:
    """The parts of the view that the configuration wants, for reading."""
    view = wanted_view(config)

    def part(name: str) -> TableView:
        return TableView(OpenedWhenAsked(partial(stores.open, name, read_only=True)))

    tables = part(TABLES) if view.tables else None
    topics = part(TOPICS) if view.topics else None
    return Served(tables, topics, frozenset(view.topics), is_local=not view.is_redis)


def answer(shared: Shared, number: int) -> None:
    """One process that answers; started by ``Children``."""
    configure(shared.log_level, shared.config.secrets())
    _tell_crashes()
    served = served_of(shared.config, ViewStores(shared.config))
    answer_as_child(partial(_server, shared, served, number), shared.listening)


def _tell_crashes() -> None:
    """A process that the machine ends, for it read behind the end of a file, say, is to leave a line all the same."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__, all_threads=False)


def _server(shared: Shared, served: Served, number: int) -> Server:
    return make_server(
        shared.config, served, Tally(shared.cells, number), Notice(shared.notice).read, shared.open_pages
    )


def _tell(notice: Notice, meter: FeedMeter) -> None:
    notice.write(generate_latest(meter.metrics.registry))


class _There:
    """Other processes answer."""

    def __init__(self, shared: Shared, count: int, tell: Callable[[], None], stores: ViewStores) -> None:
        self._children = Children(answer, lambda number: (shared, number), count, self._look_through)
        self._tell = tell
        self._stores = stores

    def _look_through(self, number: int) -> None:
        """Find out whether what the process read ended it: then nobody is to read that again."""
        if number not in _SENT:
            self._stores.look_through()

    def run(self, stop: threading.Event) -> None:
        self._children.run(stop, self._tell)


class _Here:
    """This process answers."""

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
                "what answers did not end in time: it is left behind",
                limit_s=LONGEST_STOP_S,
                remedy="leave it: the process ends without it; a client that does not read held it up",
            )
        worker.check()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
