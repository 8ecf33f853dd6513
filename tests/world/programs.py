"""The real programs, as a machine runs them: bridge and view, without ports, signal handlers and log files.

What a program leaves out here decides nothing about rows: its metrics' port, and the threads that only report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Final

import structlog

from cdc.base.config import Config, HttpConfig
from cdc.base.daemon.supervise import supervise
from cdc.base.errors import CdcError, TakenOver
from cdc.bridge.decoding import Decoding
from cdc.bridge.metering import BridgeMeter
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.scope_watch import ScopeWatch
from cdc.bridge.session import BridgeSession, Fencings, KeptByProcess
from cdc.sink.apply.loop import CutReport, run_mirror
from cdc.views.store.memory import Contents, MemoryStore
from cdc.views.store.port import Transaction
from cdc.views.table.writer import ViewPlace
from tests.world.turns import Turns

NAME: Final = "w"


def configuration(**more: object) -> Config:
    """Returns a configuration for the world, with sections changed as ``more`` says."""
    sections: dict[str, object] = {
        "name": NAME,
        "source": {"dsn": "host=primary dbname=shop user=bridge"},
        "kafka": {"bootstrap": "kafka.world:9092"},
        "topics": {"partitions": 2, "min_compaction_lag_ms": 0, "delete_retention_ms": 60_000},
        "view": {"store": "memory"},
    }
    for name, section in more.items():
        known = sections.get(name)
        sections[name] = {**known, **section} if isinstance(known, dict) and isinstance(section, dict) else section
    return Config.model_validate(sections)


_HEALS: Final = {"on_gap": "rebackfill"}
CONFIGURATIONS: Final = [
    configuration(),
    configuration(delivery="idempotent"),
    configuration(source=_HEALS),
    configuration(source=_HEALS, delivery="idempotent"),
]


@cache
def _meter() -> BridgeMeter:
    """Metrics for all runs: nobody reads them, and making them takes as long as a short run."""
    return BridgeMeter(HttpConfig(), CountsByTable(), threading.Event())


def run_bridge(config: Config, stop: threading.Event) -> None:
    """Run ``cdc run`` until ``stop`` is set.

    Raises:
        CdcError: an operator has to act.
    """
    decoding = Decoding(config.source.slot, streaming=config.source.streaming)
    kept = KeptByProcess(CountsByTable(), decoding, Fencings())
    with ScopeWatch(config, lambda: config, threading.Event(), stop) as scope:

        def session(works: Callable[[], None]) -> None:
            try:
                BridgeSession(scope.config, scope, works, _meter(), kept).run()
            except TakenOver:
                structlog.get_logger("world").info("taken over")

        supervise(session, stop, _ignore)


def run_view(config: Config, contents: Contents, turns: Turns, stop: threading.Event) -> None:
    """Fill the view, as ``cdc serve`` does, until ``stop`` is set.

    Raises:
        CdcError: an operator has to act.
    """
    assert config.view is not None
    place = ViewPlace(lambda: WorldStore(contents, turns), config.name, config.view)

    def session(works: Callable[[], None]) -> None:
        def on_cut(_report: CutReport) -> None:
            works()

        run_mirror(config, place, stop, on_cut)

    supervise(session, stop, _ignore)


def _ignore(_error: CdcError) -> None:
    """Take no note of an attempt that is followed by another."""


class WorldStore(MemoryStore):
    """The view's store in memory, whose commits are requests: a program may die before one, or after it."""

    def __init__(self, contents: Contents, turns: Turns) -> None:
        super().__init__(contents)
        self._turns = turns

    def lock(self) -> bool:
        """Becomes the only writer."""
        self._turns.turn()
        return super().lock()

    def begin(self) -> Transaction:
        """Begins a transaction."""
        self._turns.turn()
        return TurningTransaction(super().begin(), self._turns)


class TurningTransaction:
    """A transaction of the store."""

    def __init__(self, inner: Transaction, turns: Turns) -> None:
        self._turns = turns
        self.version = inner.version
        self.get, self.put, self.delete, self.drop = inner.get, inner.put, inner.delete, inner.drop
        self.abort = inner.abort
        self._commit = inner.commit

    def commit(self) -> int:
        """Commits, perhaps just before the program dies."""
        self._turns.turn()
        version = self._commit()
        self._turns.turn()
        return version
