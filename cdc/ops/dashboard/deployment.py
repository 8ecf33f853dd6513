"""One deployment, looked at as ``cdc status`` and ``cdc check`` look at it, from its configuration."""

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
_SOON_S: Final = 20.0
"""Between two askings at least, when something changed that it is about."""


class Rarely:
    """One question. For one thread; the asking is done in the executor.

    Args:
        executor: where it is asked.
        old_s: after which an answer is asked for again.
    """

    def __init__(self, executor: Executor, old_s: float = OLD_S) -> None:
        self._executor = executor
        self._old_s = old_s
        self._asked_at: float | None = None
        self._about: object = None
        self._under_way: Future[Document] | None = None
        self._answer: Document | None = None

    def answer(self, ask: Callable[[], Document], about: object = None, *, is_wanted: bool) -> Document | None:
        """The newest answer, with ``at``, or with ``error`` instead of its content; None before the first.

        Args:
            ask: what may be asked now; raises CdcError.
            about: asks sooner than otherwise when it is not what it was.
            is_wanted: whether to ask at all; without, what was answered stays.
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
    """What a configuration describes. Looked at by one thread.

    Args:
        read: the configuration as it is now: a reload may change it.
        own: the process that this is, if it is one of the deployment's.
        path: where the configuration was read.
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
        """Of the deployment."""
        return self._config.name

    def look(self, *, is_watched: bool) -> Document:
        """Everything, as plain values."""
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
            # All that the stream read, it has published.
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
        """Let connections go."""
        self._beside.shutdown()
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
        """For the first look that has the progress topic; later ones have counters to compare."""
        if self._has_looked or self._follower is None or self._status.is_reading:
            return None
        self._has_looked = True
        return WrittenWal(self._follower.lately())

    def _topic_of(self, table: str) -> str:
        try:
            return state_topic(self._config, *parts(table))
        except (CdcError, ValueError):
            return table  # it has none, and cdc check says why


def _readers(status: Mapping[str, Any], counted: Numbers) -> list[TombstoneReader]:
    """Who must see every tombstone, as far as we know them."""
    found = []
    if (sink := status["sink"]) is not None and sink.get("lag_seconds") is not None:
        found.append(TombstoneReader("the replica", round(sink["lag_seconds"] * 1000), 0))
    if (age_s := counted.single.get(_COUNTED_S)) is not None and age_s == age_s:
        found.append(TombstoneReader("the view", round(age_s * 1000), 0))
    return found


def _with_zeros(counted: Numbers, processes: Sequence[Process]) -> Numbers:
    """A process that answers and has no counter yet counted nothing; of one that is silent nobody knows."""
    answering = {each.role for each in processes if each.state in ("here", "answers")}
    zeros = {what: {"": 0.0} for what, role in (("changes", "bridge"), ("fed", "serve")) if role in answering}
    return counted._replace(by_table={**zeros, **counted.by_table})


def _figures(
    status: Mapping[str, Any], counted: Numbers, rates: Rates, topics: Mapping[str, Any] | None
) -> dict[str, float | None]:
    """The numbers of the charts; None for what nobody knows now."""
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
