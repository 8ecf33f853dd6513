"""A table that is published again goes no faster than the sink, behind which rows of the stream would wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from cdc.kafka.acls import sink_group
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.topic_audit import read_records
from tests.support.waiting import eventually

ROWS = 60_000


@pytest.fixture
def live(deploy: Deploy, database: Database) -> Iterator[Deployment]:
    """Two exact tables, one of them large; the sink stands still."""
    database.execute("CREATE TABLE large (id int PRIMARY KEY, a text); CREATE TABLE small (id int PRIMARY KEY)")
    database.execute(f"INSERT INTO large SELECT i, repeat('x', 20) FROM generate_series(1, {ROWS}) i")
    deployment = deploy(topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    deployment.assert_equal("public.large", "public.small")
    eventually(lambda: sum(stored(deployment, "public.large")) > ROWS, message=deployment.sink.tail)
    deployment.sink.signal(signal.SIGSTOP)
    yield deployment
    deployment.sink.signal(signal.SIGCONT)


def stored(deployment: Deployment, table: str) -> list[int]:
    """The offsets in Kafka, as lag monitors see them."""
    group = sink_group(deployment.name)
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return [each.offset for each in found.topic_partitions if each.topic == deployment.topic(table)]


def published(deployment: Deployment) -> int:
    return len(read_records(deployment.bootstrap, [deployment.topic("public.large")])) - ROWS


def test_it_waits_while_the_stream_goes_on(live: Deployment, database: Database) -> None:
    live.command("backfill", "public.large", "--no-follow")
    live.bridge.wait_said("a backfill goes no faster than the sink")
    database.execute("INSERT INTO small VALUES (1)")
    live.wait_published()
    assert live.backfills()["public.large"].state == "running"
    assert published(live) < ROWS / 2
    live.sink.signal(signal.SIGCONT)
    live.wait_backfilled()
    live.assert_equal("public.large", "public.small")
    assert published(live) == ROWS


def test_it_need_not_wait(live: Deployment) -> None:
    live.settings["snapshot"] = {"wait_for_sink": False}
    live.write()
    live.bridge.stop()
    live.start_bridge()
    live.command("backfill", "public.large", "--no-follow")
    live.bridge.wait_said("backfill done")
    assert published(live) == ROWS
    assert "no faster than the sink" not in live.bridge.said()
