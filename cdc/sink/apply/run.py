"""``cdc sink``: the mirror as a process, with its signals, its metrics and its retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import structlog

from cdc.base.config import Config
from cdc.base.daemon.http import HealthServer
from cdc.base.daemon.pages import OpenPages
from cdc.base.daemon.supervise import supervise
from cdc.base.daemon.wait_log import WaitLog
from cdc.base.errors import CdcError
from cdc.base.metrics import SinkMetrics, SlotMetrics
from cdc.base.waits import WAITS, WHOM
from cdc.bridge.source.slot_meter import SlotMeter
from cdc.bridge.source.slot_watch import slot_watch
from cdc.contract.naming import progress_topic
from cdc.contract.record import Progress
from cdc.kafka.replay.backlog import StoredOffsets
from cdc.kafka.replay.pulse import BrokerPulse
from cdc.sink.apply.loop import CutReport, run_mirror
from cdc.sink.apply.topics import RebuildOrder
from cdc.sink.dialects import open_replica

_MOMENT_S: Final = 2.0
"""A sink under load often catches up for a moment, which is not worth a log line."""

log = structlog.get_logger("cdc.sink")


class SinkMeter:
    """Turns cuts into metrics. Ready when a cut was committed, no error followed, and the sink waits for nobody."""

    def __init__(self) -> None:
        self.metrics = SinkMetrics()
        self.rows = 0
        self._newest: Progress | None = None
        self._commit_ts = 0
        self._lag_s = 0.0
        self._is_working = False
        self._error: CdcError | None = None
        self.metrics.lag_seconds.set_function(lambda: max(self._lag_s, WAITS.longest_s("replica")))
        for whom in WHOM:
            self.metrics.waiting_seconds.labels(whom).set_function(partial(WAITS.longest_s, whom))
        self._inexact_since: float | None = time.monotonic()
        self._was_exact = False

    def cut(self, report: CutReport) -> None:
        """Counts a cut that the replica committed."""
        metrics, progress = self.metrics, report.progress
        self._is_working, self._error = True, None
        metrics.catching_up.set(not report.is_true)
        if report.is_true:
            self._newest = progress
            metrics.cut_lsn.set(progress.lsn)
        # A quiet source is not a lag: a cut without a new transaction is as current as it can be
        is_new = progress.commit_ts != self._commit_ts
        self._lag_s = max(time.time() - progress.commit_ts / 1_000_000, 0.0) if is_new else 0.0
        self._commit_ts = progress.commit_ts
        for topic, count in report.rows.items():
            self.rows += count
            table = report.tables.get(topic)
            metrics.rows_applied.labels(topic if table is None else table.name).inc(count)
        for table in report.tables.values():
            metrics.table_state.labels(table.name).state(table.state)
        self._tell_exact(report)

    def _tell_exact(self, report: CutReport) -> None:
        """Logs once that every table is exact, and again after that was untrue for more than a moment."""
        now = time.monotonic()
        if not report.tables or any(table.state != "exact" for table in report.tables.values()):
            self._inexact_since = self._inexact_since or now
            return
        if self._inexact_since is None:
            return
        took_s, self._inexact_since = now - self._inexact_since, None
        if not self._was_exact or took_s > _MOMENT_S:
            self._was_exact = True
            count = len(report.tables)
            log.info(
                f"all {count} tables are exact" if count > 1 else "the table is exact",
                lsn=str(report.progress.lsn),
                took_s=round(took_s, 1),
            )

    def waits(self, table: str, seconds: float) -> None:
        """Records for how many seconds a table has waited for somebody's lock; 0 when the wait is over."""
        self.metrics.lock_wait_seconds.labels(table).set(seconds)

    def retried(self, error: CdcError) -> None:
        """Counts an attempt that ended with a retryable error."""
        self._is_working, self._error = False, error
        self.metrics.restarts.labels(type(error).__name__).inc()

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Returns what ``/ready`` answers."""
        facts: dict[str, object] = {"cut_lsn": None if self._newest is None else str(self._newest.lsn)}
        if self._error is not None:
            facts |= {"error": self._error.message, "remedy": self._error.remedy}
        waits = WAITS.document()
        return self._is_working and not waits, {**facts, "waits": waits}


def run_sink(
    config: Config, stop: threading.Event, order: RebuildOrder | None = None, pages: OpenPages | None = None
) -> None:
    """Runs the sink until ``stop`` is set. It first begins to rebuild the tables that ``order`` names.

    Args:
        config: the deployment's configuration.
        stop: ends the sink.
        order: tables to rebuild.
        pages: shown at ``http.sink_port`` beside metrics and probes.

    Raises:
        CdcError: the operator must act.
    """
    meter = SinkMeter()
    replica = open_replica(config, application_name=f"cdc sink {config.name}", on_wait=meter.waits)

    def session(works: Callable[[], None]) -> None:
        def on_cut(report: CutReport) -> None:
            works()
            meter.cut(report)
            stored.store(report.offsets)

        run_mirror(config, replica, stop, on_cut, order)

    http = config.http
    with StoredOffsets(config.kafka.client_options(), config.name, stop) as stored, ExitStack() as beside:
        if http.sink_port is not None:
            beside.enter_context(
                HealthServer(http.host, http.sink_port, meter.metrics.registry, meter.ready, stop, pages)
            )
        beside.enter_context(WaitLog(stop))
        beside.enter_context(slot_watch(config, SlotMeter(SlotMetrics(meter.metrics.registry)), stop))
        beside.enter_context(BrokerPulse(config.kafka.client_options(), progress_topic(config.name), stop))
        supervise(session, stop, meter.retried)
    log.info("stopped", rows=meter.rows)
