"""Metrics of what the feeds do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from cdc.base.errors import CdcError
from cdc.base.metrics import FeedMetrics
from cdc.base.waits import WAITS, WHOM
from cdc.sink.apply.loop import CutReport


class FeedMeter:
    """The metrics that the feeds' threads update."""

    def __init__(self) -> None:
        self.metrics = FeedMetrics()
        self._commit_ts = 0
        self._lag_s = 0.0
        self.metrics.lag_seconds.set_function(lambda: max(self._lag_s, WAITS.longest_s("replica")))
        for whom in WHOM:
            self.metrics.waiting_seconds.labels(whom).set_function(partial(WAITS.longest_s, whom))

    def cut(self, report: CutReport) -> None:
        """Counts a commit of a bridge's tables."""
        progress = report.progress
        is_new = progress.commit_ts != self._commit_ts
        lag_s = max(time.time() - progress.commit_ts / 1_000_000, 0.0)
        self._lag_s = lag_s if is_new else 0.0  # the same commit again: nothing is missing, however old it is
        self._commit_ts = progress.commit_ts
        self.applied(
            {report.tables[topic].name: count for topic, count in report.rows.items() if topic in report.tables}
        )

    def applied(self, rows: Mapping[str, int]) -> None:
        """Counts applied rows by table."""
        for table, count in rows.items():
            self.metrics.rows_applied.labels(table).inc(count)

    def retried(self, error: CdcError) -> None:
        """Counts an attempt that ended with an error and is followed by another."""
        self.metrics.restarts.labels(type(error).__name__).inc()
