"""Looks at one deployment again and again, in a thread of its own, and keeps what it saw.

Theory of operation. While somebody watches, the recorder looks every two seconds. While nobody does, it looks every 15
seconds, which is enough for the charts. If a look takes longer than 0.2 s, the next one comes later, so that looking
takes a small part of the time. All watchers get the same bytes: one more page costs only the sending.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import orjson
import structlog

from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError

CAPACITY: Final = 960
"""Number of samples: four hours at one sample in 15 seconds, which takes about 80 KB."""


class Ring:
    """The newest samples of several series, all taken at the same moments.

    Args:
        names: the names of the series.
        capacity: how many samples to keep.
    """

    def __init__(self, names: Sequence[str], capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._taken = 0
        self._at = array("d", [0.0]) * capacity
        self._series = {name: array("d", [math.nan]) * capacity for name in names}

    def __len__(self) -> int:
        return min(self._taken, self._capacity)

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Add one sample; an unknown value becomes a gap in its series."""
        place = self._taken % self._capacity
        self._at[place] = at
        for name, series in self._series.items():
            value = values.get(name)
            series[place] = math.nan if value is None else value
        self._taken += 1

    def document(self) -> dict[str, Any]:
        """Returns all samples, oldest first: ``at`` in seconds since 1970, and a list per series, with NaN for gaps."""
        return {
            "at": self._in_order(self._at),
            "series": {name: self._in_order(series) for name, series in self._series.items()},
        }

    def _in_order(self, column: array[float]) -> list[float]:
        if self._taken <= self._capacity:
            return column[: self._taken].tolist()
        start = self._taken % self._capacity
        return column[start:].tolist() + column[:start].tolist()


Document: TypeAlias = dict[str, Any]

WATCHED_S: Final = 2.0
"""Seconds from one look to the next while somebody watches. A look asks three servers; nobody needs it more often."""
UNWATCHED_S: Final = 15.0
"""Seconds from one look to the next while nobody watches, and between two samples of the charts at all times."""
_TOUCHED_S: Final = 10.0
"""How long a single request for the state counts as watching."""
_REST: Final = 10.0
"""The least time from the end of one look to the start of the next, in multiples of the look's duration: looking takes
an eleventh of the time at most."""
_LONGEST_REST_S: Final = 5.0
"""The limit of that time: even on an overloaded machine, trouble must be visible within seconds."""
_REST_IN_TROUBLE: Final = 1.0
"""Replaces ``_REST`` in trouble: people wait for its end, and looks are slow only because a server does not answer."""

SERIES: Final = (
    "changes_s",
    "wal_bytes_s",
    "lag_bytes",
    "retained_bytes",
    "replica_lag_s",
    "applied_s",
    "fed_s",
    "backfill_rows_s",
    "topics_bytes",
)

log = structlog.get_logger("cdc.dashboard")


class Deployment(Protocol):
    """A deployment that a recorder can look at."""

    @property
    def name(self) -> str:
        """The deployment's name, for people."""

    def look(self, *, is_watched: bool) -> Document:
        """Returns its state now; ``figures`` in it holds the numbers of ``SERIES``.

        The first look also fills ``before``: earlier moments, with the bytes of WAL per second written then.
        """

    def close(self) -> None:
        """Close the connections."""


class Recorder:
    """Looks at one deployment from ``start`` to ``close``.

    Args:
        deployment: what to look at; only the recorder's thread does.
        news: notified after each look.
        is_eager: look even while nobody watches, for the charts.
    """

    def __init__(self, deployment: Deployment, news: threading.Condition, *, is_eager: bool = True) -> None:
        self.name: Final = deployment.name
        self.version = 0
        self._deployment = deployment
        self._news = news
        self._is_eager = is_eager
        self._is_in_trouble = False
        self._watchers = 0
        self._watched_until = 0.0
        self._ended = False
        self._ring = Ring(SERIES)
        self._sampled_at = -UNWATCHED_S
        self._latest: bytes = b"null"
        self._worker = Worker(self._run, name=f"dashboard {deployment.name}")

    def start(self) -> None:
        """Start the thread that looks."""
        self._worker.start()

    def end(self) -> None:
        """Tell the thread to stop; a look may still be in progress."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def close(self, timeout_s: float) -> None:
        """Wait for the thread to end, at most ``timeout_s``."""
        self._worker.join(timeout_s)
        self._worker.check()

    def watch(self, change: int) -> None:
        """Change the number of watchers by ``change``."""
        with self._news:
            self._watchers += change
            self._news.notify_all()

    def touch(self) -> None:
        """Count as watched for a while: somebody polls for the newest look, and will ask again."""
        with self._news:
            self._watched_until = time.monotonic() + _TOUCHED_S
            self._news.notify_all()

    @property
    def _is_watched(self) -> bool:
        return self._watchers > 0 or time.monotonic() < self._watched_until

    @property
    def latest(self) -> bytes:
        """The newest look as JSON; null before the first."""
        return self._latest

    def past(self) -> bytes:
        """Returns the charts as JSON."""
        with self._news:
            return orjson.dumps(self._ring.document())

    def _run(self) -> None:
        try:
            # Do not look at once: a process that is just starting has enough to do.
            self._wait_for_watchers(UNWATCHED_S if self._is_eager else None)
            while not self._ended:
                if not self._is_eager:
                    self._wait_for_watchers(None)
                began = time.monotonic()
                self._look(began)
                took_s = time.monotonic() - began
                rest_s = min(took_s * (_REST_IN_TROUBLE if self._is_in_trouble else _REST), _LONGEST_REST_S)
                self._rest(began, began + took_s + rest_s)
        finally:
            self._deployment.close()

    def _look(self, now: float) -> None:
        try:
            document = self._deployment.look(is_watched=self._is_watched)
        except CdcError as error:
            document = {"name": self.name, "error": {"text": error.message, "remedy": error.remedy}}
        except Exception as error:
            log.error(
                "the dashboard cannot look",
                exc_info=True,
                remedy="report it with this traceback; cdc status shows the same on a terminal",
            )
            text = f"internal error of the dashboard: {type(error).__name__}"
            document = {"name": self.name, "error": {"text": text, "remedy": "report it with the traceback in the log"}}
        self._is_in_trouble = _is_in_trouble(document)
        document |= {"at": time.time(), "took_s": time.monotonic() - now}
        before: list[tuple[float, float]] = document.pop("before", [])
        with self._news:
            if now - self._sampled_at >= UNWATCHED_S - 1:
                self._sampled_at = now
                for at, rate in before if not len(self._ring) else ():  # the ring must stay ordered by time
                    self._ring.add(at, {"wal_bytes_s": rate})
                self._ring.add(document["at"], document.get("figures", {}))
                document["sampled"] = True
            self._latest = orjson.dumps(document)
            self.version += 1
            self._news.notify_all()

    def _rest(self, began: float, earliest: float) -> None:
        """Waits until the next look is due, which is sooner when somebody begins to watch."""
        with self._news:
            while not self._ended:
                due = max(began + (WATCHED_S if self._is_watched else UNWATCHED_S), earliest)
                left_s = due - time.monotonic()
                if left_s <= 0:
                    return
                self._news.wait(left_s)

    def _wait_for_watchers(self, timeout_s: float | None) -> None:
        with self._news:
            self._news.wait_for(lambda: self._ended or self._is_watched, timeout_s)


def _is_in_trouble(document: Document) -> bool:
    """Whether a server does not answer, or a process is not running as it should."""
    status = document.get("status") or {}
    servers = any(part is not None and not part["reachable"] for part in map(status.get, ("source", "topics", "sink")))
    states = {(status.get(each) or {}).get("state") for each in ("bridge", "sink", "view")}
    return servers or bool(states - {"running", "unknown", None})
