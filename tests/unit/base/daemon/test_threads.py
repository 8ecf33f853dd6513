"""Each thread of ours made to raise: its owner raises it, and where the owner is the process, the process ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from cdc.base.config import Config, ViewConfig
from cdc.base.config.serve import ServeConfig
from cdc.base.daemon import http, wait_log
from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError, SourceRefused, SourceUnavailable
from cdc.base.waits import Waits
from cdc.bridge import rereader, scope_watch, topic_watch
from cdc.bridge.asking import own_bridge
from cdc.bridge.backfill import readers, sweep
from cdc.bridge.backfill.readers import ChunkReaders
from cdc.bridge.backfill.tasks import ReadFailure, ViewTask
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.needs import Rows
from cdc.bridge.source import giving_up, slot_watch
from cdc.bridge.source.connect import source_errors
from cdc.contract.change import UNCHANGED_TOAST, Column, Relation, ReplicaIdentity
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish import transactional
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.replay import backlog, pulse
from cdc.lab.demo import probes
from cdc.ops.dashboard.board import Board
from cdc.sink.apply.session import ReplicaJobs
from cdc.sink.postgres import locks
from cdc.views.feed import run as feed
from cdc.views.http import run
from cdc.views.store import redis_lock
from cdc.views.store.redis_link import RedisPlace
from tests.architecture.test_tidy import calls
from tests.architecture.tree import modules
from tests.support.waiting import eventually

CONFIG = Config.model_validate(
    {"name": "shop", "source": {"dsn": "host=127.0.0.1 port=1"}, "kafka": {"bootstrap": "127.0.0.1:1"}}
)

_NOWHERE = BrokerAdmin(CONFIG.kafka.client_options())

COLUMNS = (Column("id", 20, -1, "pg_catalog.int8", True), Column("body", 25, -1, "pg_catalog.text", False))
TABLE = TableEncoder(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, COLUMNS), ("id",), "shop.public.t")


class Bug(Exception):
    """No error of the tree, so a bug of ours."""


def boom(*_: Any, **__: Any) -> Any:
    raise Bug


def slot_watch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_watch, "inspect_retention", boom)
    monkeypatch.setattr(slot_watch, "connect", Connection)
    stop = threading.Event()
    with slot_watch.SlotWatch(CONFIG, lambda _: None, stop):
        assert stop.wait(10)


def scope_watch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, hangup = threading.Event(), threading.Event()
    with scope_watch.ScopeWatch(CONFIG, boom, hangup, stop):
        hangup.set()
        assert stop.wait(10)


def wait_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, waits = threading.Event(), Waits()
    monkeypatch.setattr(waits, "long", boom)
    with wait_log.WaitLog(stop, waits):
        assert stop.wait(10)


def pulse_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PAUSE_S", 0.0)
    monkeypatch.setattr(pulse, "BrokerAdmin", boom)
    stop = threading.Event()
    with pulse.BrokerPulse(CONFIG.kafka.client_options(), "shop.__progress", stop):
        assert stop.wait(10)


def offsets_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "open_consumer", boom)
    stop = threading.Event()
    with backlog.StoredOffsets(CONFIG.kafka.client_options(), "shop", stop) as offsets:
        offsets.store({("shop.public.t", 0): 1})
        assert stop.wait(10)


def http_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadingHTTPServer, "service_actions", boom)
    stop = threading.Event()
    with http.HealthServer("127.0.0.1", 0, CollectorRegistry(), lambda: (True, {}), stop):
        assert stop.wait(10)


LOOKED_AT: Any = SimpleNamespace(qualified_name="public.t", oid=1)
NO_BACKFILL: Any = None
"""It is never looked at."""


def store_lock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_lock, "RENEW_S", 0)
    monkeypatch.setattr(redis_lock, "connect", lambda *_, **__: SimpleNamespace(register_script=lambda _: boom))
    lock = redis_lock.RedisLock(RedisPlace("", "", ""), "")
    eventually(lock.check, 10)


def reader_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "open_chunk_reader", boom)
    running = ChunkReaders({}, None, application_name="", publication="", count=1)
    try:
        running.submit(ViewTask(NO_BACKFILL, LOOKED_AT, None))
        eventually(running.take, 10)
    finally:
        running.close()


def sweep_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "topic_ends", boom)
    running = sweep.Sweep(_NOWHERE, "shop.public.orders", (0,))
    try:
        eventually(running.take, 10)
    finally:
        running.close()


def own_bridge_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_bridge, "run_bridge", boom)
    with own_bridge.OwnBridge(CONFIG, None) as running:
        running.start()
        eventually(running.check, 10)


def probe_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg, "connect", boom)
    monkeypatch.setattr(probes, "open_consumer", boom)
    with probes.Probes("", "", "", "") as running:
        eventually(running.check, 10)


def topic_watch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "look_at", boom)
    running = topic_watch.TopicWatch(CONFIG, _NOWHERE, SimpleNamespace(topics={}), {}, boom, interval_s=0.0)
    try:
        eventually(running.look, 10)
    finally:
        running.close()


def progress_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(begin_transaction=boom, produce=boom)
    monkeypatch.setattr(transactional, "Producer", lambda *_, **__: client)
    running = KafkaPublisher({"bootstrap.servers": "127.0.0.1:1"}, transactional_id="t", max_message_bytes=1_000_000)
    try:
        running.write("topic", b"key", b"value")
        eventually(running.is_written, 10)
    finally:
        running.close()


def rereader_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereader, "connect", boom)
    running = rereader.Rereader({}, "", application_name="")
    try:
        running.read(Rows(TABLE, ((b"1", UNCHANGED_TOAST),), (7,), ((b"1",),)), None, 10)
    finally:
        running.close()


def lock_watch_ends(_: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    with locks.watching(locks.LockWaits(), boom, over.set):
        assert over.wait(10)


def stop_watch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, stop = threading.Event(), threading.Event()
    stop.set()

    def give_up(*_: Any) -> None:
        looked.set()
        boom()

    monkeypatch.setattr(giving_up, "give_up", give_up)
    connection: Any = Connection()
    with giving_up.unless_stopped(stop, connection, "it"):
        assert looked.wait(10)


def feed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other feed ends, too."""
    monkeypatch.setattr(feed, "run_mirror", boom)
    monkeypatch.setattr(feed, "wait_for_lock", lambda lock, name, stop: not stop.wait(10))
    view = ViewConfig.model_validate({"store": "memory", "topics": {"apps": {}}})
    feed.run_feeds(CONFIG.model_copy(update={"view": view}), threading.Event())


def service_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fills its view ends, too."""
    monkeypatch.setattr(run, "make_server", boom)
    monkeypatch.setattr(run, "run_feeds", lambda config, stop, stores, meter: stop.wait(10))
    serve = ServeConfig(port=0)
    run.run_service(CONFIG.model_copy(update={"view": ViewConfig(store="memory"), "serve": serve}), threading.Event())


def dashboard_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that fails is shown (``test_pages.py``); what raises beside it ends the looking."""
    board = Board([SimpleNamespace(name="shop", look=lambda *, is_watched: {}, close=boom)])
    board.start()
    board.close()


class Connection:
    """Stands where a connection is opened and nothing is asked."""

    closed = False

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...

    def cancel(self) -> None: ...


ENDS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "cdc/bridge/source/slot_watch.py": slot_watch_ends,
    "cdc/bridge/scope_watch.py": scope_watch_ends,
    "cdc/bridge/source/giving_up.py": stop_watch_ends,
    "cdc/base/daemon/http.py": http_server_ends,
    "cdc/base/daemon/wait_log.py": wait_log_ends,
    "cdc/kafka/replay/backlog.py": offsets_end,
    "cdc/kafka/replay/pulse.py": pulse_ends,
    "cdc/sink/postgres/locks.py": lock_watch_ends,
    "cdc/bridge/backfill/readers.py": reader_ends,
    "cdc/bridge/backfill/sweep.py": sweep_ends,
    "cdc/bridge/asking/own_bridge.py": own_bridge_ends,
    "cdc/lab/demo/probes.py": probe_ends,
    "cdc/bridge/topic_watch.py": topic_watch_ends,
    "cdc/bridge/rereader.py": rereader_ends,
    "cdc/kafka/publish/publisher.py": progress_ends,
    "cdc/views/store/redis_lock.py": store_lock_ends,
    "cdc/views/feed/run.py": feed_ends,
    "cdc/views/http/run.py": service_ends,
    "cdc/ops/dashboard/recorder.py": dashboard_ends,
}


@pytest.mark.parametrize("module", ENDS)
def test_a_thread_that_raises_raises_in_its_owner(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Bug):
        ENDS[module](monkeypatch)


def test_every_thread_of_ours_is_among_these() -> None:
    """A thread that is started in any other way ends without a word."""
    bare = [f"{path}:{call.lineno}" for path in modules("cdc") for call in calls(path, "Thread", "threading")]
    assert [each.split(":")[0] for each in bare] == ["cdc/base/daemon/worker.py"], (
        f"use cdc.base.daemon.worker.Worker: {bare}"
    )
    started = {
        str(path)
        for path in modules("cdc")
        for name in ("Worker", "beside", "Threads", "ThreadPoolExecutor")
        for _ in calls(path, name)
        if str(path) != "cdc/base/daemon/worker.py"  # where both are made
    }
    # Their futures are waited for on the next line, or in tests/unit/base/daemon/test_threads.py::test_the_writer…; the
    # first two are shown in test_ending.py. Those of client_threads.py only wait
    waited_for = {
        "cdc/base/daemon/supervise.py",
        "cdc/base/daemon/threads.py",
        "cdc/kafka/client_threads.py",
        "cdc/ops/status/parts.py",
        "cdc/lab/stack/artefacts.py",
        "cdc/sink/apply/loop.py",
        "cdc/views/query/desk.py",
        "cdc/ops/dashboard/deployment.py",
        "cdc/views/http/beside.py",
        "cdc/views/store/lmdb_store.py",
    }
    assert started - waited_for == set(ENDS), "show here what happens when it raises"


def test_the_sinks_writing_thread_raises_in_the_session() -> None:
    """The session settles what it handed over before it hands over more, in every pass, and at its end."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        jobs = ReplicaJobs(thread, "the replica", lambda _: None)
        jobs.hand_over(boom)
        with pytest.raises(Bug):
            jobs.settle()


def test_an_error_that_ends_the_block_already_is_not_replaced() -> None:
    worker = Worker(boom, name="w")
    worker.start()
    worker.end(SourceRefused("the real reason", remedy="try again"))
    with pytest.raises(Bug):
        worker.check()
    worker.check()  # told once


def test_what_a_reader_is_refused_fails_the_table_and_not_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    error = SourceRefused("no right to read it", remedy="try again")

    def refused(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(readers, "open_chunk_reader", Connection)
    monkeypatch.setattr(readers, "refuse_standby", lambda _: None)
    monkeypatch.setattr(readers, "view_table", refused)
    running = ChunkReaders({}, None, application_name="", publication="", count=1)
    try:
        for _ in range(2):  # it goes on to the next task
            running.submit(ViewTask(NO_BACKFILL, LOOKED_AT, None))
            news = eventually(running.take, 10)
            assert isinstance(news, ReadFailure)
            assert news.error is error
    finally:
        running.close()


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (psycopg.errors.UndefinedTable, SourceUnavailable),
        (psycopg.errors.InternalError_, SourceUnavailable),
        (psycopg.errors.LockNotAvailable, SourceUnavailable),
        (psycopg.errors.AdminShutdown, SourceUnavailable),
        (psycopg.errors.SyntaxError, SourceRefused),
        (psycopg.errors.InsufficientPrivilege, SourceRefused),
        (psycopg.errors.WrongObjectType, SourceRefused),
    ],
)
def test_no_error_of_psycopg_passes_the_border(raised: type[psycopg.Error], becomes: type[CdcError]) -> None:
    with pytest.raises(becomes), source_errors("reading the catalog"):
        raise raised("relation does not exist")
