"""A key whose type changed: ``{"id":"5"}`` and ``{"id":5}`` are two keys of the topic, and one row of the replica.

Both kinds of records lie in different partitions, and a table that is larger than the sink's memory comes in several
parts. A tombstone of a former key took the row of the new one away, and the table was ``exact`` without it.
"""

from __future__ import annotations

import itertools
import signal
from typing import Final

import pytest

from cdc.sink.apply.session import MAX_RECORDS
from tests.support.deployment import Deploy, Deployment
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.waiting import eventually

ROWS: Final = MAX_RECORDS + 5_000
CHANGES: Final = (("text", "int4"), ("numeric", "int4"), ("int4", "text"), ("int4", "numeric"))
SINKS: Final = ("running", "stopped", "fresh")
DELIVERIES: Final = ("transactional", "idempotent")
SAMPLE: Final = (
    ("text", "int4", "stopped", "transactional"),
    ("text", "int4", "fresh", "idempotent"),
)
CASES: Final = [(*change, *rest) for change, *rest in itertools.product(CHANGES, SINKS, DELIVERIES)]


def alter(database: Database, now: str) -> None:
    database.execute(f"ALTER TABLE t ALTER COLUMN id TYPE {now} USING id::text::{now}")
    database.execute("UPDATE t SET v = 'new' WHERE v LIKE 'row 7%'; DELETE FROM t WHERE v LIKE 'row 3%'")


@pytest.fixture
def mirrored(database: Database, deploy: Deploy) -> Deployment:
    """A table with text keys, and its replica."""
    database.execute(
        f"CREATE TABLE t (id text PRIMARY KEY, v text);"
        f"INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, {ROWS}) i"
    )
    live = deploy(topics={"partitions": 4}, source={"on_gap": "rebackfill"})
    live.start()
    live.wait_mirrored()
    return live


def state(live: Deployment) -> tuple[str, str]:
    ((found, reason),) = live.replica.execute("SELECT state, reason FROM cdc.mirrored_table")
    return found, reason or ""


@pytest.mark.parametrize(
    ("was", "now", "sink", "delivery"),
    sampled(CASES, SAMPLE),
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
    alter(database, now)
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


def test_what_was_locked_is_emptied_when_the_lock_is_gone(database: Database, mirrored: Deployment) -> None:
    """A reader keeps the table from being emptied: the definition counts as taken up only when it is."""
    with mirrored.replica.connect() as reader, reader.transaction():
        reader.execute("LOCK TABLE t IN ACCESS SHARE MODE")
        alter(database, "int4")
        mirrored.wait_equal("public.t")
        eventually(lambda: state(mirrored)[0] != "exact")
        mirrored.sink.restart()
        mirrored.wait_mirrored()
        assert state(mirrored)[0] != "exact"
    eventually(lambda: state(mirrored)[0] == "exact", 60, mirrored.sink.tail)
    mirrored.assert_equal("public.t")


ENDS: Final = ("sink.before_apply", "sink.before_replica_commit", "sink.after_replica_commit")


@pytest.mark.parametrize("crashpoint", sampled(ENDS, ENDS[1:2]))
def test_a_sink_that_is_killed_beside_it_loses_nothing(
    database: Database, mirrored: Deployment, crashpoint: str
) -> None:
    mirrored.sink.stop()
    alter(database, "int4")
    mirrored.wait_equal("public.t")
    for _ in range(2):
        mirrored.sink.start(crashpoint=crashpoint)
        assert mirrored.sink.wait() == -signal.SIGKILL
    mirrored.sink.start()
    mirrored.wait_mirrored()
    eventually(lambda: state(mirrored)[0] == "exact", 60, mirrored.sink.tail)
    mirrored.assert_equal("public.t")
