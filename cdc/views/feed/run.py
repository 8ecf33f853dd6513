"""Fills a view: runs both feeds, each in a thread of its own that tries again after an outage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

import structlog

from cdc.base.config import Config
from cdc.base.daemon.supervise import supervise
from cdc.base.daemon.worker import Worker
from cdc.contract.ports import BeginAnew
from cdc.kafka.replay.client import TopicMissing
from cdc.kafka.replay.reader import TopicReader
from cdc.sink.apply.loop import CutReport, run_mirror, wait_for_lock
from cdc.views.feed.meter import FeedMeter
from cdc.views.feed.stores import TABLES, TOPICS, ViewStores, wanted_view
from cdc.views.feed.topics import TopicSession
from cdc.views.table.topic_writer import TopicWriter
from cdc.views.table.writer import ViewPlace

_GONE_S: Final = 0.5
"""Pause after a topic was deleted: brokers learn of it one after the other."""

log = structlog.get_logger("cdc.view")


def run_feeds(
    config: Config, stop: threading.Event, stores: ViewStores | None = None, meter: FeedMeter | None = None
) -> None:
    """Fills the view until ``stop`` is set, which also happens when a feed cannot go on.

    If another process fills the view already, this one waits for it to end. Processes that only read need none of this.

    Args:
        config: with a ``view`` section.
        stop: ends the feeds.
        stores: the caller's stores, if they are in memory and read in this process.
        meter: counts what the feeds do.

    Raises:
        CdcError: the operator must act.
    """
    view = wanted_view(config)
    stores, meter = stores or ViewStores(config), meter or FeedMeter()
    feeds: dict[str, Callable[[Callable[[], None]], None]] = {}
    if view.tables:
        feeds["tables"] = lambda works: _fill_tables(config, stores, stop, meter, works)
    if view.topics:
        feeds["topics"] = lambda works: _fill_topics(config, stores, stop, meter, works)
    workers = [_supervised(name, feed, stop, meter) for name, feed in feeds.items()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for worker in workers:
        worker.check()


def _supervised(
    name: str, feed: Callable[[Callable[[], None]], None], stop: threading.Event, meter: FeedMeter
) -> Worker:
    return Worker(lambda: supervise(feed, stop, meter.retried), name=f"feed {name}", on_failure=stop.set)


def _fill_tables(
    config: Config, stores: ViewStores, stop: threading.Event, meter: FeedMeter, works: Callable[[], None]
) -> None:
    def on_cut(report: CutReport) -> None:
        works()
        meter.cut(report)

    run_mirror(config, ViewPlace(lambda: stores.open(TABLES), config.name, wanted_view(config)), stop, on_cut)


def _fill_topics(
    config: Config, stores: ViewStores, stop: threading.Event, meter: FeedMeter, works: Callable[[], None]
) -> None:
    topics = wanted_view(config).topics

    def on_commit(rows: Mapping[str, int]) -> None:
        works()
        meter.applied(rows)

    while not stop.is_set():
        with (
            closing(TopicWriter(stores.open(TOPICS), config.name, topics)) as writer,
            closing(TopicReader(config.kafka.client_options(), stamps=True)) as reader,
        ):
            if not wait_for_lock(writer.lock, config.name, stop):
                return
            try:
                TopicSession(reader, writer, sorted(topics), stop, on_commit).run()
            except BeginAnew:
                continue
            except TopicMissing as error:
                log.warning(
                    "a topic is gone",
                    error=error.message,
                    remedy="wait: a recreated topic is read again; start the bridge (cdc run) if it does not run",
                )
                stop.wait(_GONE_S)
