"""Servers in Docker, where an engine answers that has the images."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.lab.stack import open_redis, open_registry, open_stack
from cdc.lab.stack.containers import KAFKA_IMAGE, REDIS_IMAGE, REGISTRY_IMAGE, postgres_image
from cdc.lab.stack.engine import why_not_docker
from cdc.lab.stack.redis_server import answers
from cdc.lab.stack.registry import registry_answers
from cdc.lab.stack.running import running


def test_both_servers_in_containers():
    reason = why_not_docker(postgres_image(16)) or why_not_docker(KAFKA_IMAGE)
    if reason:
        pytest.skip(reason)
    with open_stack(backend="docker", for_tests=True) as stack:
        with psycopg.connect(stack.postgres.dsn()) as connection:
            assert connection.execute("show wal_level").fetchone() in {("logical",), (b"logical",)}
        bootstrap = stack.kafka.bootstrap
        topic = NewTopic("of-this-test", 1, 1, config={"cleanup.policy": "compact"})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])["of-this-test"].result(10)
        # With one listener for clients and for the broker itself, this is what would hang.
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "of-this-test", "log_level": 2})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("of-this-test", b"value", b"key")
        producer.commit_transaction(30)
    assert bootstrap not in {entry.url for entry in running()}


def test_redis_in_a_container():
    reason = why_not_docker(REDIS_IMAGE)
    if reason:
        pytest.skip(reason)
    server = open_redis(backend="docker")
    address = urlsplit(server.url)
    assert answers(address.hostname or "", address.port or 0)
    server.close()
    assert server.url not in {entry.url for entry in running()}


def test_a_registry_in_a_container():
    reason = why_not_docker(REGISTRY_IMAGE)
    if reason:
        pytest.skip(reason)
    server = open_registry(backend="docker")
    assert registry_answers(server.url)
    server.close()
    assert server.url not in {entry.url for entry in running()}
