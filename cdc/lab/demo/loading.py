"""The first part of the demo: bridge and sink load the whole shop while traffic changes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.base.errors import StackError
from cdc.bridge.asking.display import ending_line
from cdc.bridge.asking.outcome import Following
from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillProgress
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.demo.screen import Screen
from cdc.lab.demo.shop import Traffic
from cdc.lab.demo.shop_tables import TABLES
from cdc.lab.proof.positions import is_captured, table_states

_START_TIMEOUT_S: Final = 60.0
_BACKFILL_TIMEOUT_S: Final = 300.0
_BETWEEN_LOOKS_S: Final = 0.15
_MANY_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Backfilled:
    """The result of the backfill.

    Attributes:
        row_count: existing rows that were published; those that the stream published in a newer version do not count.
        seconds: how long that took.
        changes: row changes made since bridge and sink were started.
    """

    row_count: int
    seconds: float
    changes: int

    @classmethod
    def of(cls, progress: Iterable[BackfillProgress], changes: int) -> Backfilled:
        """Compute the result from the last progress record of each table."""
        ended = tuple(progress)
        begun_at, ended_at = min(each.started_at for each in ended), max(each.updated_at for each in ended)
        return cls(sum(each.rows for each in ended), (ended_at - begun_at) / 1e6, changes)


class Loading:
    """Makes changes until everything is loaded, and shows the progress of the backfill.

    Args:
        place: where bridge and sink were just started.
        screen: shows what happens.
        traffic: makes the changes.
        daemons: bridge and sink.
    """

    def __init__(self, place: DemoPlace, screen: Screen, traffic: Traffic, daemons: Iterable[Daemon]) -> None:
        self._place, self._screen, self._traffic = place, screen, traffic
        self._daemons = tuple(daemons)
        self._changes = 0

    def wait(self, source: psycopg.Connection[Any], replica: psycopg.Connection[Any]) -> Backfilled:
        """Wait until every table is backfilled and exact in the replica.

        Raises:
            StackError: a daemon ended by itself, a backfill failed, or it takes too long.
        """
        place = self._place
        self._trade_until(
            "replication slot that is read", lambda: is_captured(source, place.name), timeout_s=_START_TIMEOUT_S
        )
        self._screen.say("the bridge publishes the stream and, at the same time, the existing rows")
        result = self._follow()
        states = table_states(replica, place.name)
        self._screen.say(f"the topics hold all rows; the replica says: {_told(states)}")
        self._trade_until("replica that is exact", lambda: table_states(replica, place.name) == {"exact": len(TABLES)})
        self._screen.say(f"the replica says: {_told(table_states(replica, place.name))}")
        return result

    def _follow(self) -> Backfilled:
        following = Following(None, dict.fromkeys(TABLES))
        topic = progress_topic(self._place.name)
        with (
            closing(TopicReader({"bootstrap.servers": self._place.bootstrap})) as reader,
            self._screen.backfills() as show,
        ):
            reader.add({(topic, 0): 0})

            def is_over() -> bool:
                following.saw(reader.poll(_MANY_RECORDS, 0.01))
                show(following)
                return following.is_over

            self._trade_until("end of the backfill", is_over)
        failed = [ending_line(each) for each in following.progress.values() if each.state != "done"]
        if failed:
            raise StackError(
                "\n".join([*failed, *(daemon.tail() for daemon in self._daemons)]),
                remedy="read the logs above, then start the demo again",
            )
        return Backfilled.of(following.progress.values(), self._changes)

    def _trade_until(self, what: str, condition: Callable[[], bool], *, timeout_s: float = _BACKFILL_TIMEOUT_S) -> None:
        wait_for(what, condition, self._daemons, timeout_s, self._trade)

    def _trade(self) -> None:
        until = time.monotonic() + _BETWEEN_LOOKS_S
        while time.monotonic() < until:
            self._changes += self._traffic.step()


def _told(states: Counter[str]) -> str:
    return ", ".join(f"{count} tables {state}" for state, count in sorted(states.items())) or "nothing yet"
