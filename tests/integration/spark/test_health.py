"""Topics with known faults: every number of the health report is what was written, and each fault is a finding."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import JobColumn, JobTable, KafkaSettings, SparkSettings
from cdc.contract.jobspec.health import HealthJob, HealthTopic
from cdc.contract.record import TableSchema
from cdc.lab.stack import Kafka
from cdc.spark.health.main import check
from cdc.spark.health.model import HealthReport, TopicHealth
from cdc.spark.health.page import as_html
from cdc.spark.health.text import as_text
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_settings import create_topic
from tests.support.topic_writer import TopicWriter

DAY_MS = 86_400_000
RETENTION_MS = 2 * DAY_MS


@dataclass
class FaultyTopic:
    """A topic that nothing cleans (policy delete, kept for ever), and what was written into it."""

    writer: TopicWriter
    schema: TableSchema
    now_ms: int
    sizes: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def put(self, partition: int, key: bytes, value: bytes | None, age_ms: int, header: bytes | None = None) -> None:
        stamp = TopicWriter.header(self.schema, 100, op="d" if value is None else "u") if header is None else header
        self.writer.write(
            self.schema.topic, key, value, stamp, partition=partition, timestamp=self.now_ms - age_ms
        )  # fmt: skip
        self.sizes[partition] += len(key) + len(value or b"")


@pytest.fixture
def faulty(kafka: Kafka) -> FaultyTopic:
    writer = TopicWriter(kafka.bootstrap)
    topic = f"{writer.name}.public.faulty"
    settings = {"cleanup.policy": "delete", "retention.ms": "-1", "delete.retention.ms": str(RETENTION_MS)}
    create_topic(writer.admin, NewTopic(topic, 2, 1, config=settings))
    schema = writer.table("faulty", id="int4", note="text")
    return FaultyTopic(writer, schema, time.time_ns() // 1_000_000)


def write_faults(topic: FaultyTopic) -> None:
    with topic.writer.kafka_transaction():
        topic.writer.define(topic.schema)
        for number in range(12):  # one key with many versions, the first superseded 9 days ago
            topic.put(0, b'{"id":1}', b'{"id":1,"note":"%d"}' % number, 10 * DAY_MS - number * DAY_MS // 2)
        topic.put(0, b'{"id":2}', b'{"id":2,"note":null}', DAY_MS)
        topic.put(1, b'{"id":3}', b'{"id":3,"note":null}', 5 * DAY_MS)
        topic.put(1, b'{"id":3}', None, 4 * DAY_MS)  # older than delete.retention.ms
        topic.put(1, b'{"id":4}', None, 3_600_000 // 2)
        topic.put(1, b'{"id":5}', b'{"id":5,"note":null}', 1000)
        topic.put(0, b'{"id":"5"}', b'{"id":5,"note":null}', 1000)  # an alias with a row, in the other partition
        topic.put(0, b'{ "\\u0069d": 4.0 }', None, 1000)  # an alias without one
        topic.put(0, b'{"id":6}', b'{"id":6,"note":null}', 1000)
        topic.put(1, b'{"id":6}', b'{"id":6,"note":null}', 1000)  # in two partitions
        topic.put(1, b'{"id":7}', b"null", 1000)
        topic.put(1, b'{"id":8}', b'{"id":8,"note":null}', 1000, header=b"")
        topic.put(1, b'{"id":9}', b'{"id":9,"note":null}', 1000, header=b"v=2;op=u")
        topic.put(1, b"ten", b'{"id":10,"note":null}', 1000, header=b"v=1;op=u;lsn=0/1;seq=1;xid=1;ts=1;schema=beef")
    with topic.writer.kafka_transaction(commit=False):
        topic.put(1, b'{"id":11}', b"aborted", 1000)
        topic.sizes[1] -= len(b'{"id":11}') + len(b"aborted")


def job_of(topic: FaultyTopic, kafka: Kafka, *, ours: bool) -> HealthJob:
    table = JobTable(
        namespace="public",
        name="faulty",
        topic=topic.schema.topic,
        key=("id",),
        columns=(
            JobColumn(name="id", sql_type="int4", kind="number"),
            JobColumn(name="note", sql_type="text", kind="text"),
        ),
    )
    return HealthJob(
        spark=SparkSettings(),
        kafka=KafkaSettings(options={"bootstrap.servers": kafka.bootstrap}),
        topics=(HealthTopic(topic=topic.schema.topic, table=table if ours else None),),
        schemas_topic=topic.writer.schemas_topic if ours else None,
        top=3,
    )


def found(topic: TopicHealth) -> dict[str, str]:
    return {each.code: each.severity for each in topic.findings}


def test_every_fault_is_counted_and_named(
    spark: SparkSession, faulty: FaultyTopic, kafka: Kafka, tmp_path: Path
) -> None:
    write_faults(faulty)
    report = check(spark, job_of(faulty, kafka, ours=True))
    topic = report.topics[0]

    zero, one = topic.partitions
    assert (zero.records, zero.live_keys, zero.tombstones, zero.superseded_records) == (16, 4, 1, 11)
    assert (one.records, one.live_keys, one.tombstones, one.superseded_records) == (9, 6, 2, 1)
    assert {0: zero.bytes, 1: one.bytes} == faulty.sizes
    versions = sum(len(b'{"id":1}') + len(b'{"id":1,"note":"%d"}' % number) for number in range(11))
    assert (zero.superseded_bytes, one.superseded_bytes) == (versions, len(b'{"id":3}{"id":3,"note":null}'))
    assert (zero.oldest_ms, zero.newest_ms) == (faulty.now_ms - 10 * DAY_MS, faulty.now_ms - 1000)
    assert topic.superseded_since_ms == faulty.now_ms - 10 * DAY_MS + DAY_MS // 2
    assert topic.oldest_tombstone_ms == faulty.now_ms - 4 * DAY_MS
    assert topic.expired_tombstones == 1
    assert [bar.count for bar in topic.tombstone_ages] == [2, 0, 1, 0, 0]
    assert [bar.count for bar in topic.records_per_key] == [11, 1, 0, 1, 0, 0]
    assert [(each.key, each.partition, each.records) for each in topic.hot_keys[:2]] == [
        ('{"id":1}', 0, 12),
        ('{"id":3}', 1, 2),
    ]
    odd = topic.oddities
    assert (odd.without_header, odd.unknown_version, odd.without_key, odd.not_json_keys) == (1, 1, 0, 1)
    assert (odd.null_values, odd.split_keys, odd.alias_groups, odd.live_alias_groups) == (1, 1, 2, 1)
    assert [(set(each.keys), each.live) for each in topic.aliases] == [
        ({'{"id":5}', '{"id":"5"}'}, 2),
        ({'{"id":4}', '{ "\\u0069d": 4.0 }'}, 0),
    ]
    assert topic.split_examples == ('{"id":6}',)
    assert [(each.fingerprint, each.columns, each.records, each.live_keys) for each in topic.schemas] == [
        ("beef", None, 1, 1),
        (faulty.schema.fingerprint, 2, 22, 7),
    ]
    assert topic.oldest_schema == "beef"
    assert found(topic) == {
        "cleanup_policy": "error",
        "alias_keys": "error",
        "alias_keys_deleted": "note",
        "split_keys": "error",
        "null_values": "error",
        "without_header": "error",
        "unknown_version": "error",
        "not_json_keys": "error",
        "unknown_schema": "error",
    }
    assert not report.healthy
    assert HealthReport.model_validate_json(report.model_dump_json()) == report
    text = as_text(report)
    assert "1 logical key with several rows" in text
    assert "not healthy: 8 errors" in text
    page = as_html(report)
    assert "http" not in page.replace(kafka.bootstrap, "")
    (tmp_path / "health.html").write_text(page, encoding="utf-8")


def test_a_foreign_topic_is_not_held_to_our_contract(spark: SparkSession, faulty: FaultyTopic, kafka: Kafka) -> None:
    write_faults(faulty)
    report = check(spark, job_of(faulty, kafka, ours=False))
    assert found(report.topics[0]) == {
        "cleanup_policy": "warning",
        "alias_keys": "error",
        "alias_keys_deleted": "note",
        "split_keys": "error",
        "null_values": "warning",
    }


def test_what_the_bridge_writes_is_healthy(spark: SparkSession, database: Database, deploy: Deploy) -> None:
    deployment = deploy(topics={"partitions": 2})
    database.execute("CREATE TABLE account (id int, region text, balance numeric, PRIMARY KEY (region, id))")
    database.execute("INSERT INTO account SELECT n, 'eu', n FROM generate_series(1, 50) n")
    deployment.start_bridge()
    deployment.wait_backfilled("public.account")
    database.execute("UPDATE account SET balance = 0 WHERE id <= 20")
    database.execute("DELETE FROM account WHERE id <= 5")
    deployment.wait_published()
    deployment.bridge.stop()
    topic = deployment.topic("public.account")
    job = HealthJob(
        spark=SparkSettings(),
        kafka=KafkaSettings(options={"bootstrap.servers": deployment.bootstrap}),
        topics=(HealthTopic(topic=topic),),
        schemas_topic=f"{deployment.name}.__schemas",
    )
    measured = check(spark, job).topics[0]
    assert measured.findings == ()
    assert (measured.total("records"), measured.total("live_keys"), measured.total("tombstones")) == (75, 45, 5)
    assert measured.total("superseded_records") == 25
    assert [each.columns for each in measured.schemas] == [3]
    assert json.loads(measured.model_dump_json())["oddities"]["without_header"] == 0
