"""All metric and label names. A process makes one of these classes; each has a registry of its own.

LSNs are exported as numbers of bytes, so that the difference of two is an amount of WAL.
Naming: https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, disable_created_metrics
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.process_collector import ProcessCollector

WAL_STATUSES = ("reserved", "extended", "unreserved", "lost")
"""The values of ``wal_status``. https://www.postgresql.org/docs/current/view-pg-replication-slots.html"""

TABLE_STATES = ("loading", "catching_up", "rebuilding", "exact", "excepted", "stopped")
"""The states of a replica table: its topic does not hold every row yet; no LSN is known at which it equals the source;
replayed from the beginning, to remove rows that the topic does not hold; equal to the source at the cut; equal to it
but for rows in quarantine; stopped by an error until the operator acts."""

VIEW_STATES = ("exact", "behind", "loading", "suspect", "degraded")
"""The states of a view's table, explained in docs/views.md."""

BACKFILL_STATES = ("waiting", "running", "paused", "done", "cancelled", "failed")

KAFKA_TRANSACTION_OUTCOMES = ("committed", "aborted")


def _registry() -> CollectorRegistry:
    """Returns a registry with the process's own figures, and without ``…_created`` for counters, which nobody uses."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def _waiting(registry: CollectorRegistry, process: str) -> Gauge:
    return Gauge(
        f"cdc_{process}_waiting_seconds",
        "How long the process has waited for this server to answer; 0 for waits of less than five seconds.",
        ["server"],
        registry=registry,
    )


class SlotMetrics:
    """The slot as PostgreSQL sees it. Every process that may ask the source exports it: a bridge that died cannot.

    Args:
        registry: the process's registry.
        labels: ``bridge`` if a process reports on several slots.
    """

    def __init__(self, registry: CollectorRegistry, labels: Sequence[str] = ()) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"cdc_slot_{name}", text, labels, registry=registry)

        self.retained_bytes = gauge("retained_bytes", "WAL that PostgreSQL keeps on disk for the slot.")
        self.wal_status = Enum(
            "cdc_slot_wal_status",
            "wal_status of the slot; unreserved: WAL is about to be lost, lost: it is gone.",
            labels,
            states=WAL_STATUSES,
            registry=registry,
        )
        self.safe_wal_bytes = gauge(
            "safe_wal_bytes",
            "WAL that may still be written before the slot may be lost; +Inf without max_slot_wal_keep_size.",
        )
        self.seconds_to_full = gauge(
            "seconds_to_full",
            "Seconds until safe_wal_bytes is used up, at the rate of the last minutes; +Inf while it does not shrink.",
        )
        self.lag_bytes = gauge("lag_bytes", "WAL written and not confirmed by the bridge.")
        self.active = gauge("active", "1 while somebody reads from the slot.")
        self.invalidated = gauge("invalidated", "1 if the server invalidated the slot: changes are missing.")

    def gauges(self) -> tuple[Gauge, ...]:
        """Returns all metrics of the slot except ``wal_status``."""
        return (
            self.retained_bytes,
            self.safe_wal_bytes,
            self.seconds_to_full,
            self.lag_bytes,
            self.active,
            self.invalidated,
        )


class BridgeMetrics:
    """Metrics of ``cdc run``. ``table`` is ``namespace.table``."""

    def __init__(self) -> None:
        self.registry = registry = _registry()
        self.changes = Counter(
            "cdc_bridge_changes", "Row changes read from the replication stream.", ["table"], registry=registry
        )
        self.kafka_transactions = Counter(
            "cdc_bridge_kafka_transactions", "Kafka transactions by outcome.", ["outcome"], registry=registry
        )
        self.published_lsn = Gauge(
            "cdc_bridge_published_lsn", "Everything committed before this LSN (bytes) is published.", registry=registry
        )
        self.confirmed_lsn = Gauge(
            "cdc_bridge_confirmed_lsn",
            "LSN (bytes) confirmed to the slot; PostgreSQL may drop older WAL.",
            registry=registry,
        )
        self.publish_lag_seconds = Gauge(
            "cdc_bridge_publish_lag_seconds",
            "Age of the oldest commit that was read from PostgreSQL and is not published yet; 0 when there is none.",
            registry=registry,
        )
        self.toast_rereads = Counter(
            "cdc_bridge_toast_rereads",
            "Rows read again because an unchanged TOAST value was not in the stream.",
            ["table"],
            registry=registry,
        )
        self.truncates = Counter(
            "cdc_bridge_truncates", "TRUNCATEs turned into tombstones.", ["table"], registry=registry
        )
        self.quarantined_keys = Gauge(
            "cdc_bridge_quarantined_keys",
            "Keys in quarantine, because their rows cannot be carried: the topic holds the table except for these.",
            ["table"],
            registry=registry,
        )
        self.restarts = Counter(
            "cdc_bridge_restarts",
            "Attempts after an error that allows another one, by the error's class.",
            ["error"],
            registry=registry,
        )
        self.streaming = Gauge("cdc_bridge_streaming", "1 while the replication stream is open.", registry=registry)
        self.waiting_seconds = _waiting(registry, "bridge")
        for outcome in KAFKA_TRANSACTION_OUTCOMES:
            self.kafka_transactions.labels(outcome)
        self._add_backfill(registry)

    def _add_backfill(self, registry: CollectorRegistry) -> None:
        self.backfill_rows = Counter(
            "cdc_bridge_backfill_rows", "Rows published by backfills.", ["table"], registry=registry
        )
        self.backfill_remaining_rows = Gauge(
            "cdc_bridge_backfill_remaining_rows",
            "Rows that the table's backfill still has to read, by the catalog's estimate.",
            ["table"],
            registry=registry,
        )
        self.backfill_state = Enum(
            "cdc_bridge_backfill_state",
            "State of the table's newest backfill.",
            ["table"],
            states=BACKFILL_STATES,
            registry=registry,
        )


class FeedMetrics:
    """Metrics of the feed that fills a view. ``table`` is ``namespace.table``, or another program's topic."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.rows_applied = Counter(
            "cdc_feed_rows_applied", "Rows upserted or deleted in the view's table.", ["table"], registry=registry
        )
        self.lag_seconds = Gauge(
            "cdc_feed_lag_seconds",
            "Age of what is not in the view yet: time from the newest transaction's commit in the source to the commit "
            "in the view, or how long the store has kept a transaction waiting; 0 after a cut without transactions.",
            registry=registry,
        )
        self.waiting_seconds = _waiting(registry, "feed")
        self.restarts = Counter(
            "cdc_feed_restarts",
            "Attempts after an error that allows another one, by the error's class.",
            ["error"],
            registry=registry,
        )


class SinkMetrics:
    """Metrics of ``cdc sink``. ``table`` is the replica's ``schema.table``."""

    def __init__(self) -> None:
        self.registry = registry = _registry()
        self.rows_applied = Counter(
            "cdc_sink_rows_applied", "Rows upserted or deleted in the replica table.", ["table"], registry=registry
        )
        self.cut_lsn = Gauge(
            "cdc_sink_cut_lsn", "The replica equals the source at this LSN (bytes).", registry=registry
        )
        self.catching_up = Gauge(
            "cdc_sink_catching_up",
            "1 while the sink is too far behind to know of an LSN at which the replica equals the source.",
            registry=registry,
        )
        self.lag_seconds = Gauge(
            "cdc_sink_lag_seconds",
            "Age of what is not in the replica yet: time from the newest transaction's commit in the source to the "
            "commit in the replica, or how long the replica has kept a transaction waiting; 0 after a cut without "
            "transactions.",
            registry=registry,
        )
        self.waiting_seconds = _waiting(registry, "sink")
        self.table_state = Enum(
            "cdc_sink_table_state", "State of the replica table.", ["table"], states=TABLE_STATES, registry=registry
        )
        self.lock_wait_seconds = Gauge(
            "cdc_sink_lock_wait_seconds",
            "How long rows have been waiting for a lock that somebody holds on the table; 0 if nobody does.",
            ["table"],
            registry=registry,
        )
        self.restarts = Counter(
            "cdc_sink_restarts",
            "Attempts after an error that allows another one, by the error's class.",
            ["error"],
            registry=registry,
        )


class ServeNumbers(NamedTuple):
    """The sums of what the processes of ``cdc serve`` counted.

    Attributes:
        requests: number of requests by page and status class.
        seconds: by page, the cumulative buckets (upper bound, count) and the sum.
        watches: number of watches that are open now.
        watches_cut: number of watches that were cut off because their clients were too slow.
    """

    requests: Mapping[tuple[str, str], float]
    seconds: Mapping[str, tuple[Sequence[tuple[str, float]], float]]
    watches: float
    watches_cut: float


class ServedTable(NamedTuple):
    """A table of the view that is served."""

    name: str
    state: str
    rows: int
    unreadable: int


class ServedView(NamedTuple):
    """The view that is served. ``age_seconds`` is NaN as long as it is unknown."""

    lsn: int
    age_seconds: float
    tables: Sequence[ServedTable]


class ServeMetrics:
    """Metrics of ``cdc serve``, collected for each request. ``table`` is ``namespace.table``.

    They leave out the process's own figures, because each answer would come from another process.

    Args:
        numbers: returns what was counted.
        view: returns what is served; None if that must not be shown, or the store does not answer.
    """

    def __init__(self, numbers: Callable[[], ServeNumbers], view: Callable[[], ServedView | None]) -> None:
        self._numbers = numbers
        self._view = view
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; the registry calls this."""
        numbers = self._numbers()
        requests = CounterMetricFamily(
            "cdc_serve_requests", "Requests answered, by page and class of status.", labels=["page", "status"]
        )
        for labels, count in numbers.requests.items():
            requests.add_metric(labels, count)
        yield requests
        seconds = HistogramMetricFamily(
            "cdc_serve_request_seconds", "Time from a request's headers to its answer, by page.", labels=["page"]
        )
        for page, (buckets, total) in numbers.seconds.items():
            seconds.add_metric([page], buckets, total)
        yield seconds
        yield GaugeMetricFamily("cdc_serve_watches", "Watches that are open.", numbers.watches)
        yield CounterMetricFamily(
            "cdc_serve_watches_cut", "Watches cut off because their clients did not read.", numbers.watches_cut
        )
        yield from self._of_view(self._view())

    def _of_view(self, view: ServedView | None) -> Iterator[Metric]:
        lsn = GaugeMetricFamily("cdc_serve_lsn", "The view shows what the source held at this LSN (bytes).")
        age = GaugeMetricFamily(
            "cdc_serve_age_seconds", "Time since the view was last known to show everything that the topics held."
        )
        state = StateSetMetricFamily("cdc_serve_table_state", "State of the view's table.", labels=["table"])
        rows = GaugeMetricFamily("cdc_serve_rows", "Rows of the view's table.", labels=["table"])
        unreadable = GaugeMetricFamily(
            "cdc_serve_unreadable_records", "Keys whose newest record is not a valid row.", labels=["table"]
        )
        if view is not None:
            lsn.add_metric([], view.lsn)
            age.add_metric([], view.age_seconds)
            for table in view.tables:
                state.add_metric([table.name], {each: each == table.state for each in VIEW_STATES})
                rows.add_metric([table.name], table.rows)
                unreadable.add_metric([table.name], table.unreadable)
        yield from (lsn, age, state, rows, unreadable)
