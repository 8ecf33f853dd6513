"""A key whose type changed: ``{"id":"5"}`` and ``{"id":5}`` are two keys of the topic, and one row of the replica.

Both kinds of records lie in different partitions, and a table that is larger than the sink's memory comes in several
parts. A tombstone of a former key took the row of the new one away, and the table was ``exact`` without it.
"""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from cdc.apply.session import MAX_RECORDS
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

ROWS: Final = 2 * MAX_RECORDS + 5_000
CHANGES: Final = (("text", "int4"), ("numeric", "int4"), ("int4", "text"), ("int4", "numeric"))
SINKS: Final = ("running", "stopped", "fresh")
DELIVERIES: Final = ("transactional", "idempotent")
SAMPLE: Final = (
    ("text", "int4", "stopped", "transactional"),
    ("text", "int4", "fresh", "idempotent"),
    ("int4", "text", "running", "transactional"),
)
CASES: Final = [(*change, *rest) for change, *rest in itertools.product(CHANGES, SINKS, DELIVERIES)]


def state(live: Deployment) -> tuple[str, str]:
    ((found, reason),) = live.replica.execute("SELECT state, reason FROM cdc.mirrored_table")
    return found, reason or ""


@pytest.mark.parametrize(
    ("was", "now", "sink", "delivery"),
    [pytest.param(*each, marks=[] if each in SAMPLE else pytest.mark.long) for each in CASES],
)
def test_no_former_key_takes_a_row_away(
    database: Database, deploy: Deploy, was: str, now: str, sink: str, delivery: str
) -> None:
    database.execute(
        f"CREATE TABLE t (id {was} PRIMARY KEY, v text);"
        f"INSERT INTO t SELECT i::text::{was}, 'row ' || i FROM generate_series(1, {ROWS}) i"
    )
    live = deploy(topics={"partitions": 4}, source={"on_gap": "rebackfill"})
    live.deliver(delivery)
    live.start_bridge()
    live.wait_backfilled("public.t")
    if sink != "fresh":
        live.sink.start()
        live.wait_mirrored()
    if sink == "stopped":
        live.sink.stop()
    database.execute(f"ALTER TABLE t ALTER COLUMN id TYPE {now} USING id::text::{now}")
    database.execute("UPDATE t SET v = 'new' WHERE v LIKE 'row 7%'; DELETE FROM t WHERE v LIKE 'row 3%'")
    live.wait_equal("public.t")
    if sink != "running":
        live.sink.start()
    live.wait_mirrored()
    eventually(lambda: state(live)[0] in ("exact", "stopped"), 60, live.sink.tail)
    if state(live)[0] == "stopped":
        assert sink != "fresh", state(live)
        _, _, remedy = state(live)[1].partition("remedy: ")
        live.replica.execute(remedy.partition("then restart")[0])
        live.sink.stop()
        live.sink.start()
        eventually(lambda: state(live)[0] == "exact", 60, lambda: f"{state(live)}\n{live.sink.tail()}")
    live.assert_equal("public.t")
