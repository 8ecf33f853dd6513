"""What is wrong with Kafka is said by name, with what mends it; broken brokers are waited for; nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from cdc.base.errors import TopicRefused
from cdc.contract.naming import history_topic
from cdc.lab.stack import KafkaBroker
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.process_tree import family, send
from tests.support.servers import Database
from tests.support.topic_settings import create_topic, set_topic
from tests.support.waiting import eventually

REFUSED = TopicRefused.exit_code


@pytest.fixture
def items(database: Database, deploy: Deploy) -> Deployment:
    """Not started yet."""
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
    return deploy()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that tests may kill, and that knows access rules."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaBroker.open(settings=rules, heap_mb=512, quick_start=True) as broker:
        yield broker


@pytest.fixture
def elsewhere(own_broker: KafkaBroker, database: Database, replica: Database, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment on that broker, not started yet."""
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
    with deployed(database, own_broker.bootstrap, replica, tmp_path) as deployment:
        yield deployment


def test_a_topic_that_would_lose_or_scatter_state(items: Deployment) -> None:
    topic, admin = items.topic("public.items"), AdminClient({"bootstrap.servers": items.bootstrap})
    create_topic(admin, NewTopic(topic, 2, config={"cleanup.policy": "compact,delete"}))
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert topic in said
    assert "partitions" in said or "cleanup.policy" in said
    items.settings["topics"]["partitions"] = 2
    items.write()
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert f"--entity-name {topic} --add-config cleanup.policy=compact" in said
    set_topic(items.bootstrap, topic, "cleanup.policy", "compact")
    items.start_bridge()
    items.source.execute("INSERT INTO items VALUES (1, 'x')")
    items.assert_published("public.items")
    items.bridge.stop()
    items.settings["topics"]["partitions"] = 3
    items.write()
    items.bridge.start()
    assert "set topics.partitions to 2" in items.bridge.refusal(REFUSED)


def write_as_another_program(items: Deployment, topic: str, cleanup_policy: str = "compact") -> None:
    admin, partitions = AdminClient({"bootstrap.servers": items.bootstrap}), items.settings["topics"]["partitions"]
    create_topic(admin, NewTopic(topic, partitions, config={"cleanup.policy": cleanup_policy}))
    other = Producer({"bootstrap.servers": items.bootstrap})
    other.produce(topic, b"not a row", b"17", partition=0)
    assert other.flush(30) == 0


def test_a_history_that_holds_the_records_of_another_program(items: Deployment) -> None:
    history = history_topic(items.topic("public.items"))
    items.settings["topics"]["history"] = ["public.*"]
    items.write()
    write_as_another_program(items, history, "delete")
    items.bridge.start()
    assert f"topic '{history}' holds records that no bridge wrote" in items.bridge.refusal(REFUSED)


def test_a_table_that_comes_with_the_stream_and_whose_topic_is_another_programs(
    database: Database, deploy: Deploy
) -> None:
    database.execute("CREATE TABLE first (id integer PRIMARY KEY)")
    deployment = deploy(source={"publication_mode": "all_tables"})
    write_as_another_program(deployment, deployment.topic("public.second"))
    deployment.start_bridge()
    database.execute("CREATE TABLE second (id integer PRIMARY KEY); INSERT INTO second VALUES (1)")
    said = deployment.bridge.refusal(REFUSED)
    assert f"topic '{deployment.topic('public.second')}' holds records that no bridge wrote" in said
    assert [record.key for record in deployment.records("public.second")] == [b"17"]


def test_a_topic_that_holds_the_records_of_another_program(items: Deployment) -> None:
    topic = items.topic("public.items")
    write_as_another_program(items, topic)
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert f"topic '{topic}' holds records that no bridge wrote" in said
    assert f"--delete --topic {topic}" in said
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert items.source.execute(slots) == [(0,)], "nothing is touched before it is refused"
    # What the remedy says.
    items.settings["topics"]["names"] = {"public.items": f"rows-of-{items.name}"}
    items.write()
    items.start_bridge()
    items.source.execute("INSERT INTO items VALUES (1, 'x')")
    items.assert_published("public.items")
    items.bridge.stop()


def test_a_row_larger_than_the_topic_takes(items: Deployment) -> None:
    items.settings["topics"]["max_message_bytes"] = 1_048_588
    items.write()
    items.start()
    items.source.execute("INSERT INTO items VALUES (1, 'small')")
    items.source.execute("INSERT INTO items SELECT 2, string_agg(md5(i::text), '') FROM generate_series(1, 40000) i")
    items.source.execute("INSERT INTO items VALUES (3, 'small, too')")
    said = items.bridge.refusal(REFUSED)
    topic = items.topic("public.items")
    assert '{"id":2} at LSN 0/' in said or '{\\"id\\":2} at LSN 0/' in said
    assert topic in said
    assert "topics.max_message_bytes" in said
    items.settings["topics"]["max_message_bytes"] = 40_000_000  # and a row above the send queue's usual 32 MiB
    items.write()
    items.source.execute("INSERT INTO items SELECT 4, repeat(md5('4'), 1100000)")
    set_topic(items.bootstrap, topic, "max.message.bytes", "40000000")
    items.start_bridge()
    items.assert_equal("public.items")
    items.stop()


def test_a_topic_that_we_may_not_write(own_broker: KafkaBroker, elsewhere: Deployment) -> None:
    topic, admin = elsewhere.topic("public.items"), AdminClient({"bootstrap.servers": own_broker.bootstrap})
    elsewhere.start_bridge()
    elsewhere.source.execute("INSERT INTO items VALUES (1, 'allowed')")
    elsewhere.wait_published()
    kind = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    allow = [
        AclBinding(*kind, "User:ANONYMOUS", "*", operation, AclPermissionType.ALLOW)
        for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    for future in admin.create_acls(allow).values():
        future.result(30)
    elsewhere.source.execute("INSERT INTO items VALUES (2, 'not allowed')")
    said = elsewhere.bridge.refusal(REFUSED)
    assert topic in said
    assert f"--operation DescribeConfigs --topic {topic}" in said
    rules = AclBindingFilter(*kind, "User:ANONYMOUS", "*", AclOperation.ANY, AclPermissionType.ANY)
    admin.delete_acls([rules])[rules].result(30)
    elsewhere.start_bridge()
    elsewhere.source.execute("INSERT INTO items VALUES (3, 'allowed again')")
    elsewhere.assert_published("public.items")
    elsewhere.bridge.stop()


def test_a_broker_that_is_down_at_the_start_and_later(own_broker: KafkaBroker, elsewhere: Deployment) -> None:
    own_broker.kill()
    elsewhere.bridge.start()
    elsewhere.sink.start()
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'cdc %'"
    eventually(lambda: elsewhere.source.execute(sessions) != [(0,)])  # it has found PostgreSQL and looks for Kafka
    for process in (elsewhere.bridge, elsewhere.sink):
        process.wait_said("trying again")
        assert f"Kafka does not answer: {own_broker.bootstrap}" in process.said().splitlines()[0]
        assert "is kafka.bootstrap right, and a broker up?" in process.said().splitlines()[0]
    own_broker.restart()
    elsewhere.bridge.wait_said("streaming", 60)
    elsewhere.source.execute("INSERT INTO items SELECT i, 'before' FROM generate_series(1, 1000) i")
    elsewhere.assert_equal("public.items")
    own_broker.kill()
    elsewhere.source.execute("INSERT INTO items SELECT i, 'meanwhile' FROM generate_series(1001, 2000) i")
    own_broker.restart()
    elsewhere.source.execute("INSERT INTO items SELECT i, 'after' FROM generate_series(2001, 3000) i")
    elsewhere.assert_equal("public.items")
    for process in (elsewhere.bridge, elsewhere.sink):
        process.wait_said("Kafka is back, after")
        # One line a minute, whatever the clients of librdkafka say.
        assert process.said().count("Kafka does not answer") <= 1 + process.said().count("such lines")
        own = [line for line in process.said().splitlines() if "rdkafka#" in line]
        assert all("Coordinator load in progress" in line for line in own), "of a broker that has just started"
    elsewhere.stop()


def test_a_second_signal_ends_at_once(own_broker: KafkaBroker, elsewhere: Deployment) -> None:
    """While the broker does not answer, nothing can be drained: the first SIGTERM waits, the second does not."""
    elsewhere.start_bridge()
    elsewhere.source.execute("INSERT INTO items VALUES (1, 'x')")
    elsewhere.wait_published()
    broker, before = own_broker.pid, elsewhere.now()
    try:
        send(family(broker), signal.SIGSTOP)
        elsewhere.source.execute("INSERT INTO items SELECT i, repeat('held ', 20) FROM generate_series(2, 60000) i")
        # The bridge reads until its Kafka transaction is due; then it waits for the broker, with the rest unread.
        sent = "SELECT bool_and(sent_lsn >= %s::pg_lsn + 1000000) FROM pg_stat_replication"
        eventually(lambda: elsewhere.source.execute(sent, [str(before)]) == [(True,)])
        elsewhere.bridge.signal(signal.SIGTERM)
        elsewhere.bridge.wait_said("a second signal ends at once")
        assert not elsewhere.bridge.ended
        elsewhere.bridge.signal(signal.SIGTERM)
        assert elsewhere.bridge.wait(5) == 128 + signal.SIGTERM
    finally:
        send(family(broker), signal.SIGCONT)
    elsewhere.start_bridge()
    elsewhere.assert_published("public.items")
    elsewhere.bridge.stop()


def test_a_kafka_transaction_that_nobody_ends(items: Deployment) -> None:
    items.start_bridge()
    items.source.execute("INSERT INTO items VALUES (1, 'before')")
    items.wait_published()
    items.stop()
    other = Producer({"bootstrap.servers": items.bootstrap, "transactional.id": f"another of {items.name}"})
    other.init_transactions(30)
    other.begin_transaction()
    topic = items.topic("public.items")
    other.produce(topic, b"{}", b"{}", partition=0)
    other.flush(30)
    items.source.execute("INSERT INTO items VALUES (2, 'after')")
    items.bridge.start()
    items.bridge.wait_said(f"cannot read partition 0 of topic '{topic}' to its end")
    assert "kafka-transactions.sh find-hanging" in items.bridge.said()
    assert "streaming" not in items.bridge.said()
    other.abort_transaction(30)
    items.bridge.wait_said("streaming")
    items.assert_published("public.items")
