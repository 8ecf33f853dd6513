"""``cdc serve``: the view is filled in this process, and answered from in others."""

from __future__ import annotations

import faulthandler
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from prometheus_client.exposition import generate_latest

from cdc.base.config import Config
from cdc.base.config.serve import ServeConfig
from cdc.base.daemon.logs import configure
from cdc.base.daemon.wait_log import WaitLog
from cdc.base.daemon.worker import Worker
from cdc.base.errors import ConfigError
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
from cdc.views.http.children import LONGEST_STOP_S, Children, answer_as_child
from cdc.views.http.http import Server
from cdc.views.http.listening import ServerThread, listen, url_of
from cdc.views.http.notice import Notice, SharedNotice, shared_notice
from cdc.views.http.opening import OpenedWhenAsked
from cdc.views.http.service import OpenPages, make_server
from cdc.views.http.tally import SharedCells, Tally, shared_cells
from cdc.views.query.desk import Served
from cdc.views.store.open import MEMORY
from cdc.views.table.table_view import TableView

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
