"""``/metrics``: the counts of all processes, and the state of the view."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cdc.base.errors import CdcError
from cdc.base.metrics import ServedTable, ServedView, ServeMetrics
from cdc.views.http.tally import Tally
from cdc.views.query.answer import Answer
from cdc.views.table.table_view import TableView

_WAITS: Final = re.compile(rb'^cdc_feed_waiting_seconds\{server="(kafka|source|replica)"\} ([0-9.e+]+)$', re.MULTILINE)
_SERVERS: Final = {"kafka": "Kafka to answer", "source": "the source to answer", "replica": "the store to take rows"}
_LOOK: Final = "check that server: is it up, and does its disk have room?"


class PublishedMetrics(NamedTuple):
    """The sources of ``/metrics``.

    Attributes:
        tally: the counts of the process.
        more: returns the metrics of the process that fills the view, in Prometheus's format.
    """

    tally: Tally
    more: Callable[[], bytes]

    def page(self, views: Sequence[TableView]) -> Answer:
        """Makes the page, in Prometheus's format."""
        registry = ServeMetrics(self.tally.numbers, lambda: _served(views)).registry
        said = generate_latest(registry) + self.more()
        return Answer(200, [(b"cache-control", b"no-store")], said, CONTENT_TYPE_LATEST.encode())


def _served(views: Sequence[TableView]) -> ServedView | None:
    """Reads the state of the view; None if the store does not answer. A gauge that is missing can raise an alarm, one
    that keeps an old value cannot."""
    now = time.time()
    try:
        known = [(view, view.facts()) for view in views]
        tables = [
            ServedTable(
                name, facts.standing(table, now)[0], view.count(name)[0] if table.is_shown else 0, table.unreadable
            )
            for view, facts in known
            for name, table in sorted(facts.tables.items())
        ]
    except CdcError:
        return None
    facts = [each.view for _, each in known if each.view is not None]
    caught_up_at = min((each.caught_up_at for each in facts), default=0.0)
    age_s = max(now - caught_up_at, 0) if caught_up_at else math.nan
    return ServedView(max((each.lsn for each in facts), default=0), age_s, tables)


def feed_waits(said: bytes) -> list[dict[str, object]]:
    """The servers for which the filling process is waiting.

    Args:
        said: its metrics, in Prometheus's format.
    """
    found = ((server.decode(), float(seconds)) for server, seconds in _WAITS.findall(said))
    return [
        {"for": _SERVERS[server], "whom": server, "seconds": seconds, "remedy": _LOOK}
        for server, seconds in found
        if seconds
    ]
