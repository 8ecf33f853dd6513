"""The order URL, Docker, embedded; and that a named backend is never replaced."""

from __future__ import annotations

import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import choose, probe


@pytest.fixture(autouse=True)
def no_engine(monkeypatch, tmp_path):
    for variable in ("CDC_PG_URL", "CDC_KAFKA", "CDC_REDIS_URL", "CDC_REGISTRY_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


def test_nothing_given_and_no_engine_means_embedded_and_says_why():
    postgres, kafka, redis, registry = probe()
    assert {each.backend for each in (postgres, kafka, redis, registry)} == {"embedded"}
    assert "CDC_PG_URL is not set" in str(postgres)
    assert "no Docker engine answers" in str(postgres)
    assert "CDC_KAFKA is not set" in str(kafka)
    assert "CDC_REDIS_URL is not set" in str(redis)
    assert "CDC_REGISTRY_URL is not set" in str(registry)


def test_the_environment_decides_for_each_server_alone(monkeypatch):
    monkeypatch.setenv("CDC_KAFKA", "kafka.example:9092")
    postgres, kafka, *_ = probe()
    assert postgres.backend == "embedded"
    assert (kafka.backend, kafka.url, kafka.reason) == ("url", "kafka.example:9092", "CDC_KAFKA is set")


def test_an_argument_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("CDC_PG_URL", "postgresql://environment/x")
    assert choose("PostgreSQL", url="postgresql://argument/x").url == "postgresql://argument/x"


def test_a_named_backend_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("CDC_PG_URL", "postgresql://environment/x")
    assert choose("PostgreSQL", backend="embedded").backend == "embedded"


@pytest.mark.parametrize("server", ["PostgreSQL", "Kafka", "Redis", "Registry"])
def test_docker_without_an_engine_is_refused(server):
    with pytest.raises(StackError, match=rf"{server} was asked for in Docker, but no Docker engine answers") as refused:
        choose(server, backend="docker")
    assert "DOCKER_HOST" in refused.value.remedy


def test_an_engine_that_refuses_connections_is_no_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert choose("Kafka").backend == "embedded"
