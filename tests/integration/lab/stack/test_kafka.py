"""The embedded Kafka: transactions before and after SIGKILL, and compaction that can be watched."""

from __future__ import annotations

import subprocess

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.base.errors import StackError
from cdc.lab.stack import KafkaBroker
from cdc.lab.stack.cache import silent
from cdc.lab.stack.jars import fetch_jars
from cdc.lab.stack.java import find_java
from cdc.lab.stack.kafka import cluster_id, format_tool, java_command
from tests.support.names import unique
from tests.support.waiting import eventually


def create_topic(bootstrap: str, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(10)


def publish(bootstrap: str, topic: str, records: dict[bytes, bytes | None], *, commit: bool = True) -> None:
    """One Kafka transaction under the same transactional id every time."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "the-one", "linger.ms": 0, "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in records.items():
        producer.produce(topic, value, key)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def wait_for_markers(bootstrap: str, topic: str) -> None:
    """The end of a Kafka transaction is decided first, and written to its partitions afterwards."""

    def end(isolation: str) -> int:
        options = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": isolation, "log_level": 2}
        consumer = Consumer(options)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1])
        finally:
            consumer.close()

    eventually(lambda: end("read_committed") == end("read_uncommitted"), message="no Kafka transaction open")


def read_committed(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Every committed record of partition 0 up to its present end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 2})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "the end of the topic was not reached"
            error = message.error()
            if error is None:
                records.append((message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return records
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


@pytest.mark.pg(matrix=False)
def test_committed_records_survive_a_kill_and_transactions_go_on(own_stack):
    broker = own_stack.kafka()
    bootstrap = broker.bootstrap
    create_topic(bootstrap, "kept")
    publish(bootstrap, "kept", {b"a": b"1", b"b": b"2"})
    publish(bootstrap, "kept", {b"a": b"never"}, commit=False)
    wait_for_markers(bootstrap, "kept")

    broker.kill()
    assert broker.pid == 0
    broker.restart()

    assert broker.bootstrap == bootstrap
    assert read_committed(bootstrap, "kept") == [(b"a", b"1"), (b"b", b"2")]
    publish(bootstrap, "kept", {b"a": b"3"})
    broker.stop()
    broker.restart()
    publish(bootstrap, "kept", {b"b": None})
    assert read_committed(bootstrap, "kept") == [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)]
    broker.close()
    assert not broker.directory.exists()


def test_compaction_is_visible_within_seconds(kafka):
    topic = unique("compacted-")
    settings = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "500", "max.compaction.lag.ms": "500"}
    create_topic(kafka.bootstrap, topic, **{"cleanup.policy": "compact", "delete.retention.ms": "100", **settings})
    for value in (b"1", b"2", b"3"):
        publish(kafka.bootstrap, topic, {b"a": value, b"gone": value})
    publish(kafka.bootstrap, topic, {b"gone": None})

    def compacted() -> bool:
        # The segment being written is never cleaned; each tick lets an old one be closed.
        publish(kafka.bootstrap, topic, {b"tick": b""})
        records = read_committed(kafka.bootstrap, topic)
        return records.count((b"a", b"3")) == 1 and [key for key, _ in records].count(b"a") == 1

    eventually(compacted, message="only the last value of the key is left")


def test_a_topic_is_not_made_by_mistake(kafka):
    name = unique("missing-")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "allow.auto.create.topics": True})
    error = admin.list_topics(name, timeout=10).topics[name].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in admin.list_topics(timeout=10).topics


def test_a_wrong_setting_tells_the_brokers_own_words():
    with pytest.raises(StackError, match=r"Invalid value many for configuration num\.io\.threads"):
        KafkaBroker.open(settings={"num.io.threads": "many"}, heap_mb=256, quick_start=True)


def test_a_cluster_id_that_begins_with_a_dash_is_no_option(tmp_path):
    """One in 64 does: the first start on a machine failed then."""
    properties = tmp_path / "server.properties"
    voters = "node.id=1\nprocess.roles=broker,controller\ncontroller.quorum.voters=1@127.0.0.1:1\n"
    listeners = "listeners=CONTROLLER://127.0.0.1:1,PLAINTEXT://127.0.0.1:2\ncontroller.listener.names=CONTROLLER\n"
    properties.write_text(f"{voters}{listeners}log.dirs={tmp_path / 'data'}\n")
    cluster = "-" + cluster_id()[1:]
    tool = [*java_command(find_java(), fetch_jars(say=silent)), *format_tool(cluster, properties)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cluster in (tmp_path / "data" / "meta.properties").read_text()
