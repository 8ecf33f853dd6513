"""Bridge and sink under load, while a test makes trouble; in the end, all sides hold the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support import bank
from tests.support.deployment import Deployment
from tests.support.topic_audit import audit
from tests.support.waiting import eventually

_CUTS: Final = 3


@contextmanager
def under_load(live: Deployment, rng: random.Random, delivery: str) -> Iterator[bank.Watcher]:
    """Start both beside a writer, and a watcher of the replica; at the end of the block, see that nothing is lost."""
    bank.create(live.source)
    watcher, writer = bank.Watcher(live.replica), bank.Writer(live.source, rng.randrange(10**6))
    live.deliver(delivery)
    live.start()
    for thread in (watcher, writer):
        thread.start()
    yield watcher
    writer.finish()
    live.wait_mirrored(timeout_s=120)
    live.assert_equal(*bank.TABLES)
    watcher.finish()
    assert watcher.seen.faults == []
    assert audit(live.records(*bank.TABLES)) == []
    live.stop()


def wait_for_cuts(live: Deployment, watcher: bank.Watcher) -> None:
    """Wait until the replica has come a few cuts further, and see that neither has ended."""
    wanted = watcher.seen.cuts + _CUTS
    eventually(
        lambda: watcher.seen.cuts >= wanted or live.bridge.ended or live.sink.ended,
        120,
        lambda: f"{watcher.seen}\n{live.bridge.tail()}\n{live.sink.tail()}",
    )
    see_that_they_run(live)


def see_that_they_run(live: Deployment) -> None:
    """Neither has ended by itself."""
    for process in (live.bridge, live.sink):
        assert not process.ended, process.tail()
