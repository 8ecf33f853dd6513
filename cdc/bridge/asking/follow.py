"""Follows backfills in the progress topic until they are over, and runs a bridge for them when nobody else does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.live import Live

from cdc.base.config import Config
from cdc.base.errors import TopicRefused
from cdc.bridge.asking.display import as_live, ending_line, total_line
from cdc.bridge.asking.outcome import Following
from cdc.bridge.asking.own_bridge import OwnBridge
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.slot import inspect_slot
from cdc.contract.ports import Partition
from cdc.kafka.replay.reader import TopicReader

_POLL_S: Final = 0.2
_RECORDS_PER_POLL: Final = 1_000
_LINE_INTERVAL_S: Final = 1.0
_LOOK_INTERVAL_S: Final = 1.0

UNTAKEN_S: Final = 3.0
"""If nobody reads from the slot or takes the request for this long, no bridge is running. A running one polls twice a
second."""

UNSEEN_S: Final = 15.0
"""How long to wait for the first record of each table. A bridge writes it when it takes the request, unless it leaves
the table out."""


def follow(
    config: Config,
    following: Following,
    starts: Mapping[Partition, int],
    bridge: OwnBridge,
    show: Callable[[Following], None],
) -> None:
    """Follow the progress topic until everything is over.

    Args:
        config: the whole configuration.
        following: the backfills that are waited for.
        starts: where the progress topic ended before the request was written.
        bridge: a bridge to start when no other one takes the request.
        show: called a few times a second.

    Raises:
        TopicRefused: the bridge that took the request does not know all of its tables.
        CdcError: our own bridge ended with it, or it keeps us from reading.
    """
    idle = Idle(config)
    taken_at: float | None = None
    with closing(TopicReader(config.kafka.client_options())) as reader, closing(idle):
        reader.add(starts)
        while True:
            following.saw(reader.poll(_RECORDS_PER_POLL, _POLL_S))
            show(following)
            if following.is_over:
                return
            bridge.check()
            if following.is_taken:
                taken_at = taken_at or time.monotonic()
                if following.unseen and time.monotonic() - taken_at > UNSEEN_S:
                    raise _unknown(following)
            if not bridge.is_started and idle.for_s() > UNTAKEN_S:
                bridge.start()


def _unknown(following: Following) -> TopicRefused:
    return TopicRefused(
        f"the bridge took the request, but not for {', '.join(following.unseen)}",
        remedy="the bridge runs with another configuration: restart it, or send it SIGHUP",
    )


class Idle:
    """Measures how long nobody has been reading from the slot."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._conn: psycopg.Connection[Any] | None = None
        self._since: float | None = None
        self._due = 0.0

    def for_s(self) -> float:
        """Returns the seconds, 0 while a bridge is there. Asks the server once a second."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _LOOK_INTERVAL_S
            source = self._config.source
            if self._conn is None:
                self._conn = connect(source.connection(), application_name="cdc backfill", lock_timeout_s=LOOK_S)
            state = inspect_slot(self._conn, source.slot)
            is_idle = state is None or not state.active
            self._since = (self._since or now) if is_idle else None
        return 0.0 if self._since is None else now - self._since

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


@contextmanager
def display(console: Console, say: Callable[[str], None] | None = None) -> Iterator[Callable[[Following], None]]:
    """Show how far backfills are: live on a terminal; elsewhere at most a line a second, and one per table that ends.

    Args:
        console: where to show it.
        say: writes a line there; by default, lines are printed as they are.
    """
    if not console.is_terminal:
        yield _Lines(say or partial(console.print, soft_wrap=True, markup=False))
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda following: live.update(as_live(following), refresh=True)


class _Lines:
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._due = 0.0
        self._said = ""
        self._ended: set[str] = set()

    def __call__(self, following: Following) -> None:
        for table, progress in following.progress.items():
            if not progress.is_open and table not in self._ended:
                self._ended.add(table)
                self._say(ending_line(progress))
        line, now = total_line(following), time.monotonic()
        if not following.is_over and now >= self._due and line != self._said:
            self._due, self._said = now + _LINE_INTERVAL_S, line
            self._say(line)
