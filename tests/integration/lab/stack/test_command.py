"""``cdc stack`` as a person uses it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from cdc.lab.stack.redis_server import answers
from cdc.lab.stack.registry import registry_answers
from tests.support.sampling import sampled

COMMAND = [sys.executable, "-c", "from cdc.cli.stack_command import stack_app; stack_app(prog_name='cdc stack')"]
EXPORTS = re.compile(r"export CDC_PG_URL='(.+)'\nexport CDC_KAFKA='(.+)'\n")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def connect_to_both(output: str) -> None:
    addresses = EXPORTS.fullmatch(output)
    assert addresses, output
    with psycopg.connect(addresses[1]) as connection:
        assert connection.execute("show fsync").fetchone() == ("on",)
    assert AdminClient({"bootstrap.servers": addresses[2]}).list_topics(timeout=10).brokers


def test_detached_servers_stay_until_down(own_cache):
    up = run("up", "--detach")
    try:
        connect_to_both(up.stdout)
        assert "PostgreSQL: embedded, because CDC_PG_URL is not set and no Docker engine answers" in up.stderr
        status = run("status").stdout
        assert len(re.findall(r"^running: .* detached, data in ", status, re.MULTILINE)) == 2
        again = run("up", "--detach")
        assert again.returncode != 0
        assert "a detached stack is already running" in again.stderr
    finally:
        down = run("down")
    assert "stopped PostgreSQL 16" in down.stderr
    assert "stopped Kafka" in down.stderr
    assert "running: nothing" in run("status").stdout
    assert "nothing was running" in run("down").stderr


@pytest.mark.parametrize("end", sampled([signal.SIGINT, signal.SIGTERM], [signal.SIGINT]))
def test_in_the_foreground_the_servers_end_with_the_command(own_cache, end):
    with subprocess.Popen([*COMMAND, "up", "--pg", "18"], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        connect_to_both(up.stdout.readline() + up.stdout.readline())
        up.send_signal(end)
        assert up.wait(60) == 0
    assert "running: nothing" in run("status").stdout
    assert list((own_cache / "running").iterdir()) == []


def test_what_else_is_asked_for_comes_too(own_cache):
    up = run("up", "--detach", "--redis", "--registry")
    try:
        url = re.search(
            r"^export CDC_REGISTRY_URL='(http://127\.0\.0\.1:\d+/apis/ccompat/v7)'$", up.stdout, re.MULTILINE
        )
        assert url, up.stdout + up.stderr
        assert registry_answers(url[1])
        address = re.search(r"^export CDC_REDIS_URL='redis://127\.0\.0\.1:(\d+)/0'$", up.stdout, re.MULTILINE)
        assert address, up.stdout + up.stderr
        assert answers("127.0.0.1", int(address[1]))
        assert len(re.findall(r"^running: .* detached, data in ", run("status").stdout, re.MULTILINE)) == 4
    finally:
        down = run("down")
    assert "stopped Redis" in down.stderr
    assert "stopped Registry" in down.stderr
    assert not registry_answers(url[1])
    assert "running: nothing" in run("status").stdout


def test_docker_without_an_engine_is_refused(own_cache):
    refused = run("up", "--backend", "docker")
    assert refused.returncode != 0
    assert "was asked for in Docker, but no Docker engine answers" in refused.stderr


def test_status_tells_what_the_servers_are_made_from(own_cache):
    status = run("status").stdout
    assert re.search(r"^Java for Kafka: Java \d+ from ", status, re.MULTILINE)
    assert re.search(r"^PostgreSQL binaries: 16 and 18 from wheel .*; run as ", status, re.MULTILINE)
    assert "Redis: 7.0.15, downloaded" in status
    assert f"cache: {own_cache}" in status
