"""SIGKILL at each named place of bridge and sink, under a load that reaches it: nothing lost, nothing twice."""

from __future__ import annotations

import signal

import pytest

from cdc.base import crashpoints
from tests.fault.test_backfill_kills import BACKFILL
from tests.fault.test_begin_anew import ENDS
from tests.fault.test_repair_kills import REPAIR
from tests.integration.sink.postgres.test_locked import HOLD
from tests.integration.sink.sql.test_killed_steps import KEYS_STEPS, STEPS
from tests.integration.spark.test_delta import MIRROR
from tests.integration.spark.test_iceberg import WRITTEN
from tests.integration.views.feed.test_generations import VIEW
from tests.support.deployment import Deploy, Deployment
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.topic_audit import audit
from tests.support.waiting import eventually
from tests.unit.spark.certify.test_file import CERTIFICATE

TABLES = ("public.big", "public.small")


def load(database: Database, big_rows: int) -> None:
    """A transaction larger than one Kafka transaction, small ones with changed keys, COPY, and a TRUNCATE."""
    with database.connect() as connection:
        with connection.transaction():
            connection.execute(
                f"INSERT INTO big SELECT i, 'first ' || i FROM generate_series(1, {big_rows}) i".encode()
            )
            connection.execute("UPDATE big SET id = -id WHERE id <= 1000")
            connection.execute("INSERT INTO small SELECT i, 'first' FROM generate_series(1, 100) i")
        for number in range(1, 51):
            connection.execute("UPDATE small SET id = id + 1000, note = 'moved' WHERE id = %s", (number,))
        with connection.cursor().copy("COPY small FROM STDIN") as copy:  # many rows of one LSN
            for number in range(5000, 6000):
                copy.write_row((number, "copied"))
        with connection.transaction():
            connection.execute("DELETE FROM small WHERE id % 10 = 0")
            connection.execute("TRUNCATE big")
            connection.execute("INSERT INTO big SELECT i, 'second ' || i FROM generate_series(1, 500) i")
        connection.execute("UPDATE big SET note = 'third' WHERE id % 2 = 0")


def check(deployment: Deployment) -> None:
    """All three sides are equal; every record of the topics is in order."""
    deployment.assert_equal(*TABLES)
    for table in TABLES:
        assert audit(deployment.records(table)) == []


BRIDGE = (
    ("bridge.before_kafka_commit:1", 4_000),  # the first says where the stream begins
    ("bridge.before_kafka_commit:2", 4_000),
    ("bridge.before_kafka_commit:3", 4_000),
    ("bridge.after_kafka_commit:2", 4_000),
    ("bridge.after_kafka_commit:4", 4_000),
    ("bridge.after_confirm:3", 4_000),
    ("bridge.inside_truncate:1", 50_500),  # tombstones are committed by 50,000
)
PROMPT = (
    ("bridge.rows_sent:1", 4_000, "idempotent"),
    ("bridge.rows_sent:9", 4_000, "transactional"),
    ("bridge.rows_sent:20", 4_000, "idempotent"),
    ("bridge.rows_acked:1", 4_000, "transactional"),
    ("bridge.before_kafka_commit:2", 4_000, "transactional"),
    ("bridge.after_kafka_commit:3", 4_000, "idempotent"),
    ("bridge.after_confirm:3", 4_000, "transactional"),
    ("bridge.inside_truncate:1", 50_500, "idempotent"),
)
"""With delivery: idempotent, where rows are sent before progress covers them; and how its second life delivers."""
SINK = ("sink.before_apply:1", "sink.before_replica_commit:1", "sink.after_replica_commit:2")


def test_every_crash_point_is_visited() -> None:
    here = {
        point.partition(":")[0]
        for point in (*dict(BRIDGE), *(point for point, *_ in PROMPT), *SINK, *BACKFILL, *REPAIR, *ENDS, *VIEW, *HOLD)
    }
    here |= {point.partition(":")[0] for point in (*STEPS, *KEYS_STEPS, *MIRROR, WRITTEN, CERTIFICATE)}
    assert here == crashpoints.NAMES


@pytest.fixture
def deployment(database: Database, deploy: Deploy) -> Deployment:
    database.execute(
        "CREATE TABLE big (id int PRIMARY KEY, note text); CREATE TABLE small (id int PRIMARY KEY, note text)"
    )
    return deploy(snapshot={"mode": "never"})


@pytest.mark.parametrize(("point", "big_rows"), sampled(BRIDGE, (BRIDGE[1], BRIDGE[-1])))
def test_bridge_killed_at(point: str, big_rows: int, deployment: Deployment) -> None:
    deployment.start_bridge(crashpoint=point)
    load(deployment.source, big_rows)
    deployment.sink.start()
    assert deployment.bridge.wait() == -signal.SIGKILL
    deployment.start_bridge()
    check(deployment)


@pytest.mark.parametrize(("point", "big_rows", "then"), sampled(PROMPT, PROMPT[3:4]))
def test_prompt_bridge_killed_at(point: str, big_rows: int, then: str, deployment: Deployment) -> None:
    """It dies again while it passes what is there already, and at last delivers as it began."""
    deployment.deliver("idempotent")
    deployment.start_bridge(crashpoint=point)
    load(deployment.source, big_rows)
    deployment.sink.start()
    change = "UPDATE small SET note = note || '.' WHERE id = 1007"
    eventually(lambda: _ends_beside(deployment, change), message=deployment.bridge.tail)
    assert deployment.bridge.wait() == -signal.SIGKILL
    deployment.deliver(then)
    deployment.bridge.start(crashpoint="bridge.before_kafka_commit:2")
    assert deployment.bridge.wait() == -signal.SIGKILL
    deployment.deliver("idempotent")
    deployment.start_bridge()
    check(deployment)


def _ends_beside(deployment: Deployment, change: str) -> bool:
    """Whether the bridge has come to its end; one more change may bring it there."""
    deployment.source.execute(change)
    return deployment.bridge.ended


@pytest.mark.parametrize("then", sampled(["idempotent", "transactional"], ["idempotent"]))
def test_rows_behind_a_truncate_of_an_empty_table_outlive_a_kill(deployment: Deployment, then: str) -> None:
    """Truncate and load, as jobs do. Done once more, the TRUNCATE must not take away the rows that followed it."""
    deployment.deliver("idempotent")
    deployment.start_bridge()
    deployment.bridge.stop()
    with deployment.source.connect() as connection, connection.transaction():
        connection.execute("TRUNCATE big")
        connection.execute("INSERT INTO big SELECT i, 'loaded' FROM generate_series(1, 300) i")
    deployment.bridge.start(crashpoint="bridge.rows_acked:1")  # Kafka has rows, and no progress says so
    change = "UPDATE big SET note = note || '.' WHERE id <= 10"
    eventually(lambda: _ends_beside(deployment, change), message=deployment.bridge.tail)
    assert deployment.bridge.wait() == -signal.SIGKILL
    deployment.deliver(then)
    deployment.sink.start()
    deployment.start_bridge()
    deployment.assert_equal("public.big")
    assert audit(deployment.records("public.big")) == []


@pytest.mark.parametrize("point", SINK)
def test_sink_killed_at(point: str, deployment: Deployment) -> None:
    deployment.start_bridge()
    deployment.sink.start(crashpoint=point)
    load(deployment.source, 4_000)

    def goes_on() -> bool:
        deployment.source.execute("UPDATE big SET note = note || '.' WHERE id = 2")
        return deployment.sink.ended

    eventually(goes_on, message=deployment.sink.tail)  # a slow machine may have all of the load in one cut
    assert deployment.sink.wait() == -signal.SIGKILL
    deployment.sink.start()
    check(deployment)


def test_a_big_transaction_goes_on_where_it_was_cut(deployment: Deployment) -> None:
    """Killed again and again inside one transaction: its published part grows, and no change is published twice."""
    deployment.start_bridge()
    deployment.bridge.kill()
    with deployment.source.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO big SELECT i, 'row ' || i FROM generate_series(1, 60000) i")
        connection.execute("DELETE FROM big WHERE id % 1000 = 0")
    reached: list[int] = []
    for _ in range(3):
        deployment.bridge.start(crashpoint="bridge.after_kafka_commit:2")
        assert deployment.bridge.wait() == -signal.SIGKILL
        reached.append(deployment.partial_beyond(reached[-1] if reached else 0).seq)
    assert reached == sorted(set(reached))
    deployment.sink.start()
    deployment.start_bridge()
    deployment.assert_equal("public.big")
    records = deployment.records("public.big")
    assert audit(records) == []
    assert len(records) == 60_060
