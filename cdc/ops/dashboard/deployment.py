"""One deployment, read from its configuration, as ``cdc status`` and ``cdc check`` see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from cdc.base.config import Config
from cdc.base.daemon.threads import Threads
from cdc.base.errors import CdcError
from cdc.base.lsn import LSN
from cdc.base.printed_commands import for_file
from cdc.base.table_names import parts
from cdc.bridge.scope.topics import state_topic
from cdc.contract.naming import progress_topic
from cdc.contract.progress import stream_key
from cdc.kafka.replay.backfills import Published
from cdc.kafka.replay.progress_follower import ProgressFollower
from cdc.ops.dashboard.alarms import Since, alarms
from cdc.ops.dashboard.numbers import Numbers
from cdc.ops.dashboard.processes import Own, Process, ask_each, together
from cdc.ops.dashboard.rates import Rates
from cdc.ops.dashboard.recorder import Document
from cdc.ops.dashboard.tables import tables
from cdc.ops.dashboard.topics_health import topics_health
from cdc.ops.dashboard.written import WrittenWal
from cdc.ops.status.checkup import as_document as check_document
from cdc.ops.status.checkup import check_all
from cdc.ops.status.document import as_document
from cdc.ops.status.parts import StatusReader
from cdc.topics.budget import TombstoneReader

OLD_S: Final = 300.0
"""The age at which an answer is renewed: cdc check and the topics' health take many requests, and change slowly."""
_SOON_S: Final = 20.0
"""The shortest time between two requests, even when ``about`` has changed."""


class Rarely:
    """One question that is expensive to ask, with its last answer. Use it from one thread; an executor asks.

    Args:
        executor: where the question is asked.
        old_s: the age at which an answer is renewed.
    """

    def __init__(self, executor: Executor, old_s: float = OLD_S) -> None:
        self._executor = executor
        self._old_s = old_s
        self._asked_at: float | None = None
        self._about: object = None
        self._under_way: Future[Document] | None = None
        self._answer: Document | None = None

    def answer(self, ask: Callable[[], Document], about: object = None, *, is_wanted: bool) -> Document | None:
        """Returns the newest answer without waiting, and asks again if it is old; None before the first answer.

        The answer has the time ``at``. If asking failed, it has ``error`` instead of content.

        Args:
            ask: asks the question; may raise CdcError.
            about: what the question is about; if it changes, the question is asked again sooner.
            is_wanted: whether to ask at all; if False, the last answer stays.
        """
        if self._under_way is not None and self._under_way.done():
            self._take(self._under_way)
            self._under_way = None
        now = time.monotonic()
        age_s = float("inf") if self._asked_at is None else now - self._asked_at
        is_due = age_s > self._old_s or (age_s > _SOON_S and about != self._about)
        if is_wanted and is_due and self._under_way is None:
            self._asked_at, self._about = now, about
            self._under_way = self._executor.submit(ask)
        return self._answer

    def _take(self, done: Future[Document]) -> None:
        try:
            self._answer = {**done.result(), "at": time.time()}
        except CdcError as error:
            self._answer = {"at": time.time(), "error": {"text": error.message, "remedy": error.remedy}}


_COUNTED_S: Final = "cdc_serve_age_seconds"


class ConfiguredDeployment:
    """The deployment that a configuration describes. Only one thread may look at it.

    Args:
        read: returns the current configuration: a reload may change it.
        own: this process, if it belongs to the deployment.
        path: the configuration file.
    """

    def __init__(self, read: Callable[[], Config], own: Own | None, path: Path | None = None) -> None:
        self._read = read
        self._path = path
        self._own = own
        self._config = read()
        self._follower: ProgressFollower | None = None
        self._status = StatusReader(self._published)
        self._rates = Rates()
        self._has_looked = False
        self._since = Since()
        self._beside = Threads(3, "dashboard")
        self._check = Rarely(self._beside)
        self._topics = Rarely(self._beside)

    @property
    def name(self) -> str:
        """The deployment's name."""
        return self._config.name

    def look(self, *, is_watched: bool) -> Document:
        """Returns everything about the deployment, as plain values."""
        self._take_configuration()
        config = self._config
        asked = self._beside.submit(ask_each, config, self._own)
        status = as_document(self._status.look(config), now_us=time.time_ns() // 1000)
        processes = asked.result()
        counted, rates = together(processes), self._rates
        rates.look(time.monotonic())
        check = self._check.answer(
            lambda: check_document(check_all(config)),
            [each["text"] for each in status["problems"]],
            is_wanted=is_watched,
        )
        wanted = {each["topic"] for each in (status["sink"] or {}).get("tables", ())}
        wanted |= {self._topic_of(each["table"]) for each in status["backfills"]}
        ask_topics = partial(topics_health, config.kafka.client_options(), wanted, _readers(status, counted))
        topics = self._topics.answer(ask_topics, sorted(wanted), is_wanted=is_watched and bool(wanted))
        good_check = None if check is None or "error" in check else check
        good_topics = None if topics is None or "error" in topics else topics
        figures = _figures(status, _with_zeros(counted, processes), rates, good_topics)
        before = self._written_before()
        if before is not None and figures["wal_bytes_s"] is None:
            # WrittenWal comes from published progress, so here the two rates are the same.
            figures["wal_bytes_s"] = figures["published_bytes_s"] = before.rate(time.time())
        return {
            "name": config.name,
            "before": [] if before is None else before.samples(time.time()),
            "status": status,
            "alarms": self._since.document(alarms(status, good_check, good_topics, self._path), time.time()),
            "check": check,
            "topics": topics,
            "processes": [each.document() for each in processes],
            "tables": tables(status, counted, rates, self._topic_of),
            "figures": figures,
            "single": counted.single,
            "reconciliation": {"command": for_file("cdc reconcile", self._path)},
            "has": {"sink": config.sink is not None, "view": config.view is not None},
        }

    def close(self) -> None:
        """Close the connections."""
        self._beside.shutdown()
        # A look that timed out may still be using the follower in another thread: leave it alone then.
        if self._follower is not None and not self._status.is_reading:
            self._follower.close()

    def _take_configuration(self) -> None:
        config = self._read()
        if config is not self._config and self._follower is not None and not self._status.is_reading:
            self._follower.close()
            self._follower = None
        self._config = config

    def _published(self, config: Config) -> Published:
        if self._follower is None:
            self._follower = ProgressFollower(config.kafka.client_options(), progress_topic(config.name))
        return self._follower.look(stream_key(config.source.slot))

    def _written_before(self) -> WrittenWal | None:
        """Returns the rates from before the first look at the progress topic; None later, when counters tell them."""
        if self._has_looked or self._follower is None or self._status.is_reading:
            return None
        self._has_looked = True
        return WrittenWal(self._follower.lately())

    def _topic_of(self, table: str) -> str:
        try:
            return state_topic(self._config, *parts(table))
        except (CdcError, ValueError):
            return table  # the table has no topic, and cdc check says why


def _readers(status: Mapping[str, Any], counted: Numbers) -> list[TombstoneReader]:
    """Returns the readers that must see every tombstone, as far as they are known here."""
    found = []
    if (sink := status["sink"]) is not None and sink.get("lag_seconds") is not None:
        found.append(TombstoneReader("the replica", round(sink["lag_seconds"] * 1000), 0))
    if (age_s := counted.single.get(_COUNTED_S)) is not None and age_s == age_s:  # NaN: the view knows no age yet
        found.append(TombstoneReader("the view", round(age_s * 1000), 0))
    return found


def _with_zeros(counted: Numbers, processes: Sequence[Process]) -> Numbers:
    """Add zeros for processes that answer without a counter: they counted nothing. A silent process stays unknown."""
    answering = {each.role for each in processes if each.state in ("here", "answers")}
    zeros = {what: {"": 0.0} for what, role in (("changes", "bridge"), ("fed", "serve")) if role in answering}
    return counted._replace(by_table={**zeros, **counted.by_table})


def _figures(
    status: Mapping[str, Any], counted: Numbers, rates: Rates, topics: Mapping[str, Any] | None
) -> dict[str, float | None]:
    """Returns the numbers for the charts; None where a number is unknown now."""
    slot = status["source"].get("slot") or {}
    sink = status["sink"] or {}
    applied = [each["rows_applied"] for each in sink.get("tables", ())]
    backfilled = sum(each["rows"] for each in status["backfills"])
    changes, fed = counted.by_table.get("changes"), counted.by_table.get("fed")
    return {
        "changes_s": rates.of("changes", None if changes is None else sum(changes.values())),
        "wal_bytes_s": rates.of("wal", _bytes(status["source"].get("wal_lsn"))),
        "published_bytes_s": rates.of("published", _bytes(status["topics"].get("published_lsn"))),
        "lag_bytes": slot.get("lag_bytes"),
        "lag_s": slot.get("lag_seconds"),
        "retained_bytes": slot.get("retained_bytes"),
        "replica_lag_s": sink.get("lag_seconds"),
        "applied_s": rates.of("applied", sum(applied) if sink.get("tables") is not None else None),
        "fed_s": rates.of("fed", None if fed is None else sum(fed.values())),
        "backfill_rows_s": rates.of("backfilled", backfilled),
        "requests_s": rates.of("requests", counted.single.get("cdc_serve_requests_total")),
        "topics_bytes": None if topics is None else topics["bytes"],
    }


def _bytes(lsn: str | None) -> int | None:
    return None if lsn is None else int(LSN.parse(lsn))
