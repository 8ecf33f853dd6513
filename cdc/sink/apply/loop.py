"""Topic → replica: the sink's loop, and what ends one session and begins the next.

Whenever anything fails, the session ends, and the next one is built from what the replica stores: cut, offsets and
table states. So there is one way to start, and no half-undone state. After an outage the caller tries again. Rows that
the replica rejects stop their table, and the next session begins without it. A stopped table is tried again when the
process restarts, or when the caller tries again.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

import structlog

from cdc.base.config import Config
from cdc.contract.ports import BeginAnew, ReplicaPlace, TableHeld, TableRejected
from cdc.kafka.replay.client import TopicMissing
from cdc.kafka.replay.reader import TopicReader
from cdc.sink.apply.session import CutReport, MirrorSession, ReplicaJobs
from cdc.sink.apply.topics import RebuildOrder

__all__ = ["CutReport", "run_mirror", "wait_for_lock"]

_LOCK_POLL_S: Final = 0.5
_ALLOCATIONS_PER_COLLECTION: Final = 100_000

log = structlog.get_logger("cdc.sink")


def run_mirror(
    config: Config,
    replica: ReplicaPlace,
    stop: threading.Event,
    on_cut: Callable[[CutReport], None] = lambda _: None,
    order: RebuildOrder | None = None,
) -> None:
    """Mirrors topics into replica tables until ``stop`` is set, and then finishes the cut under way.

    Args:
        config: names the topics.
        replica: where the tables are.
        stop: ends the loop.
        on_cut: called in this thread after each commit of the replica.
        order: what the operator wants rebuilt; used up by the first session that knows the tables.

    Raises:
        CdcError: when it is retryable, call again: the next call goes on from what the replica stores.
    """
    _collect_rarely()
    stopped: set[str] = set()
    order = order or RebuildOrder()
    with replica.watching(stop.set):
        replica.upgrade()
        while not stop.is_set():
            with (
                closing(replica.writer(stopped)) as rows,
                closing(TopicReader(config.kafka.client_options())) as reader,
                ThreadPoolExecutor(max_workers=1, thread_name_prefix="replica") as thread,
            ):
                if not wait_for_lock(rows.lock, config.name, stop):
                    return
                jobs = ReplicaJobs(thread, replica.called, on_cut)
                session = MirrorSession(config, reader=reader, replica=rows, jobs=jobs, stop=stop, order=order)
                try:
                    session.run()
                except TableRejected as error:
                    jobs.abandon()
                    log.error("a record stops its table, the others go on", error=error.message, remedy=error.remedy)
                    rows.stop_table(error.topic, error.reason_and_remedy, error.record)
                    stopped.add(error.topic)
                except (BeginAnew, TableHeld):
                    jobs.abandon()
                except TopicMissing as error:
                    jobs.abandon()
                    log.warning(
                        "a topic is gone",
                        error=error.message,
                        remedy="wait: the sink reads the topic when it exists again; if the bridge is down, start it: "
                        "cdc run",
                    )
                    stop.wait(_LOCK_POLL_S)


def _collect_rarely() -> None:
    """Makes garbage collection rare. Tens of thousands of rows wait in memory, and they form no cycles: searching them
    for cycles took a quarter of the CPU."""
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION, *gc.get_threshold()[1:])


def wait_for_lock(lock: Callable[[], bool], name: str, stop: threading.Event) -> bool:
    """Waits until this process is the only writer of this name; returns False when told to stop first."""
    refusals = 0
    while not lock():
        refusals += 1
        if refusals == 2:  # the first refusal may come from our own last session, which the server is still ending
            log.warning(
                "waiting: another process of this name writes there",
                name=name,
                remedy="stop one of the two, or leave this one waiting: it takes over when the other one ends",
            )
        if stop.wait(_LOCK_POLL_S):
            return False
    return True
