"""Looks at one deployment again and again, in a thread of its own, and keeps what it saw.

Theory of operation. While somebody watches, it looks each second or two; while nobody does, just often enough for the
charts of the last hours. A look that takes long is repeated less often, so that looking costs a bounded part of a core
whatever there is to look at. Whoever watches is handed the same bytes: a page more costs nothing but sending them.
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
"""Samples: four hours of one each 15 seconds, some 80 KB."""


class Ring:
    """Samples of several series, all taken at the same moments.

    Args:
        names: of the series.
        capacity: how many samples are kept.
    """

    def __init__(self, names: Sequence[str], capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._taken = 0
        self._at = array("d", [0.0]) * capacity
        self._series = {name: array("d", [math.nan]) * capacity for name in names}

    def __len__(self) -> int:
        return min(self._taken, self._capacity)

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Take one sample; a value that nobody knows is a gap in its series."""
        place = self._taken % self._capacity
        self._at[place] = at
        for name, series in self._series.items():
            value = values.get(name)
            series[place] = math.nan if value is None else value
        self._taken += 1

    def document(self) -> dict[str, Any]:
        """All samples, oldest first: ``at`` in seconds since 1970, and a list for each series, with NaN for gaps."""
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
"""Between two looks while somebody watches. A look asks three servers; more of them tell nobody more."""
UNWATCHED_S: Final = 15.0
"""Between two looks, and two samples of the charts, while nobody does."""
_TOUCHED_S: Final = 10.0
_REST: Final = 10.0
"""Times what a look took: it is at work an eleventh of the time at most, and most of that it waits for servers."""
_LONGEST_REST_S: Final = 5.0
"""Behind the end of a look, whatever it took: on a machine that is overloaded, too, trouble is shown within seconds."""
_REST_IN_TROUBLE: Final = 1.0
"""Then somebody wants to see when it is over, and a look takes long because it waits for whoever does not answer."""

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
    """What there is to look at."""

    @property
    def name(self) -> str:
        """For people."""

    def look(self, *, is_watched: bool) -> Document:
        """How it is now; ``figures`` in it holds the numbers of ``SERIES``.

        ``before`` is for the first look: moments before it, and the bytes of WAL a second that were written then.
        """

    def close(self) -> None:
        """Let connections go."""


class Recorder:
    """Works between ``start`` and ``close``.

    Args:
        deployment: looked at in the thread of this recorder only.
        news: notified of each look.
        is_eager: look while nobody watches, too, for the charts.
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
        """Begin to look."""
        self._worker.start()

    def end(self) -> None:
        """Look no more; one look may be under way."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def close(self, timeout_s: float) -> None:
        """Wait for the end, for so long at most."""
        self._worker.join(timeout_s)
        self._worker.check()

    def watch(self, change: int) -> None:
        """That many more watch, or less."""
        with self._news:
            self._watchers += change
            self._news.notify_all()

    def touch(self) -> None:
        """Somebody asked for the newest look, and will ask again: as good as watching for a while."""
        with self._news:
            self._watched_until = time.monotonic() + _TOUCHED_S
            self._news.notify_all()

    @property
    def _is_watched(self) -> bool:
        return self._watchers > 0 or time.monotonic() < self._watched_until

    @property
    def latest(self) -> bytes:
        """The newest look, as JSON; null before the first."""
        return self._latest

    def past(self) -> bytes:
        """The charts, as JSON."""
        with self._news:
            return orjson.dumps(self._ring.document())

    def _run(self) -> None:
        try:
            self._wait_for_watchers(UNWATCHED_S if self._is_eager else None)  # a process that starts has enough to do
            while not self._ended:
                if not self._is_eager:
                    self._wait_for_watchers(None)
                began = time.monotonic()
                self._look(began)
                took_s = time.monotonic() - began
                self._rest(began, min(took_s * (_REST_IN_TROUBLE if self._is_in_trouble else _REST), _LONGEST_REST_S))
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
                remedy="report it with this traceback; cdc status tells the same on a terminal",
            )
            text = f"the dashboard met a bug of its own: {type(error).__name__}"
            document = {"name": self.name, "error": {"text": text, "remedy": "the log says more; please report it"}}
        self._is_in_trouble = _is_in_trouble(document)
        document |= {"at": time.time(), "took_s": time.monotonic() - now}
        before: list[tuple[float, float]] = document.pop("before", [])
        with self._news:
            if now - self._sampled_at >= UNWATCHED_S - 1:
                self._sampled_at = now
                for at, rate in before if not len(self._ring) else ():  # samples are in order
                    self._ring.add(at, {"wal_bytes_s": rate})
                self._ring.add(document["at"], document.get("figures", {}))
                document["sampled"] = True
            self._latest = orjson.dumps(document)
            self.version += 1
            self._news.notify_all()

    def _rest(self, began: float, least_s: float) -> None:
        """Until the next look is due; sooner when somebody begins to watch."""
        with self._news:
            while not self._ended:
                pause_s = max(WATCHED_S if self._is_watched else UNWATCHED_S, least_s)
                left_s = began + pause_s - time.monotonic()
                if left_s <= 0:
                    return
                self._news.wait(left_s)

    def _wait_for_watchers(self, timeout_s: float | None) -> None:
        with self._news:
            self._news.wait_for(lambda: self._ended or self._is_watched, timeout_s)


def _is_in_trouble(document: Document) -> bool:
    """A server does not answer, or a process does not run as it should."""
    status = document.get("status") or {}
    servers = any(part is not None and not part["reachable"] for part in map(status.get, ("source", "topics", "sink")))
    states = {(status.get(each) or {}).get("state") for each in ("bridge", "sink", "view")}
    return servers or bool(states - {"running", "unknown", None})
