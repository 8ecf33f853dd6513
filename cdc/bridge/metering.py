"""Tells the outside world about the bridge process: metrics, liveness and readiness, inside the ``with`` block."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType

from cdc.base.config import HttpConfig
from cdc.base.daemon.http import HealthServer
from cdc.base.daemon.pages import OpenPages
from cdc.base.errors import CdcError
from cdc.base.lsn import LSN
from cdc.base.metrics import BridgeMetrics, SlotMetrics
from cdc.base.waits import WAITS, WHOM
from cdc.bridge.backfill.pace import remaining_rows
from cdc.bridge.order.counts import CountsByTable, TableCounts
from cdc.bridge.order.engine import Engine
from cdc.bridge.source.slot_meter import SlotMeter
from cdc.contract.record import BackfillProgress, Progress
from cdc.contract.slot_state import SlotState


class BridgeMeter:
    """Turns what the bridge reports into metrics.

    Args:
        http: says where to serve them, if at all.
        counts: counters by table, read at every Kafka commit.
        stop: set when the HTTP server fails; leaving the ``with`` block then raises the reason.
        more: pages beside metrics and probes.

    Attributes:
        registry: the metrics, as they are served.
    """

    def __init__(
        self, http: HttpConfig, counts: CountsByTable, stop: threading.Event, more: OpenPages | None = None
    ) -> None:
        self._metrics = BridgeMetrics()
        self.registry = self._metrics.registry
        self._slot = SlotMeter(SlotMetrics(self.registry))
        self._counts = counts
        self._exported: dict[str, TableCounts] = {}
        self._published: LSN | None = None
        self._is_streaming = False
        self._waits_for: int | None = None
        self._error: CdcError | None = None
        self._since = time.time_ns() // 1000
        self._engine: Engine | None = None
        self._metrics.publish_lag_seconds.set_function(self._lag_s)
        for whom in WHOM:
            self._metrics.waiting_seconds.labels(whom).set_function(partial(WAITS.longest_s, whom))
        self._backfilled: dict[str, tuple[str, int]] = {}
        self._aside: Mapping[str, int] = {}
        self._server: HealthServer | None = None
        if http.bridge_port is not None:
            self._server = HealthServer(http.host, http.bridge_port, self.registry, self._ready, stop, more)

    def __enter__(self) -> BridgeMeter:
        if self._server is not None:
            self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close(error)

    def streaming(self, is_streaming: bool) -> None:
        """Note that the stream was opened, or ended."""
        self._is_streaming = is_streaming
        if is_streaming:
            self._error = None
        self._metrics.streaming.set(is_streaming)

    def follows(self, engine: Engine) -> None:
        """Take the lag from this engine from now on."""
        self._engine = engine

    def waiting(self, active_pid: int | None) -> None:
        """Note which server process reads from the slot while this bridge waits; None when nobody does."""
        self._waits_for = active_pid

    def committed(self, progress: Progress) -> None:
        """Count a Kafka transaction that is committed with this progress, and confirmed to the slot."""
        metrics = self._metrics
        self._published = progress.lsn
        metrics.kafka_transactions.labels("committed").inc()
        metrics.published_lsn.set(progress.lsn)
        metrics.confirmed_lsn.set(progress.lsn)
        for table, now in self._counts.items():
            before = self._exported.setdefault(table, TableCounts())
            if now == before:  # few of thousands of tables change in one Kafka transaction
                continue
            metrics.changes.labels(table).inc(now.changes - before.changes)
            metrics.toast_rereads.labels(table).inc(now.toast_rereads - before.toast_rereads)
            metrics.truncates.labels(table).inc(now.truncates - before.truncates)
            before.changes, before.toast_rereads, before.truncates = now.changes, now.toast_rereads, now.truncates

    def aside(self, counts: Mapping[str, int]) -> None:
        """Export how many keys of each table are in quarantine; a table that is not among them has none any more."""
        for table, keys in {**dict.fromkeys(self._aside, 0), **counts}.items():
            self._metrics.quarantined_keys.labels(table).set(keys)
        self._aside = counts

    def aborted(self) -> None:
        """Count a Kafka transaction that was aborted with records in it."""
        self._metrics.kafka_transactions.labels("aborted").inc()

    def slot(self, state: SlotState | None) -> None:
        """Export the slot as the server sees it; may be called from any thread."""
        self._slot.look(state)

    def backfill(self, progress: BackfillProgress) -> None:
        """Export a backfill's progress. Rows that an earlier process published are not counted again."""
        table, metrics = progress.table, self._metrics
        request, rows = self._backfilled.get(table, ("", 0))
        if request != progress.request or progress.rows < rows:
            is_resumed = not request and progress.started_at < self._since
            rows = progress.rows if is_resumed else 0
        self._backfilled[table] = progress.request, progress.rows
        metrics.backfill_rows.labels(table).inc(progress.rows - rows)
        metrics.backfill_remaining_rows.labels(table).set(remaining_rows(progress))
        metrics.backfill_state.labels(table).state(progress.state)

    def retried(self, error: CdcError) -> None:
        """Count an attempt that ended with an error, after which another one follows."""
        self._error = error
        self._metrics.restarts.labels(type(error).__name__).inc()

    def _lag_s(self) -> float:
        """Returns the age of the oldest commit that was read but is not published; called by a server thread."""
        since = 0 if self._engine is None else self._engine.unpublished_since
        return max(time.time() - since / 1_000_000, 0.0) if since else 0.0

    def _ready(self) -> tuple[bool, dict[str, object]]:
        """Returns whether the bridge is ready, that is, streams and waits for nobody; and the facts for the probe."""
        facts: dict[str, object] = {"published_lsn": None if self._published is None else str(self._published)}
        if self._waits_for is not None:
            facts["waiting"] = f"another bridge is active: server process {self._waits_for} reads from the slot"
        elif self._error is not None:
            facts |= {"error": self._error.message, "remedy": self._error.remedy}
        waits = WAITS.document()
        return self._is_streaming and not waits, {**facts, "waits": waits}
