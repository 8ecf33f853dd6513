"""The daemon's HTTP server, asked over real HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping

import pytest

from cdc.base.daemon.http import HealthServer
from cdc.base.errors import ConfigError
from cdc.base.metrics import BridgeMetrics


class Daemon:
    """Something that can be ready, not ready, or broken."""

    def __init__(self) -> None:
        self.ready = True
        self.broken = False

    def state(self) -> tuple[bool, Mapping[str, object]]:
        if self.broken:
            raise RuntimeError("a bug")
        return self.ready, {"lsn": "0/16B3748"}


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def server(daemon: Daemon) -> Iterator[HealthServer]:
    metrics = BridgeMetrics()
    metrics.changes.labels("public.orders").inc(3)
    with HealthServer("127.0.0.1", 0, metrics.registry, daemon.state) as running:
        yield running


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def test_metrics(server: HealthServer) -> None:
    status, content_type, body = ask(server, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain")
    assert b'cdc_bridge_changes_total{table="public.orders"} 3.0' in body


def test_live(server: HealthServer, daemon: Daemon) -> None:
    daemon.ready = False
    status, _, body = ask(server, "/live")
    assert (status, json.loads(body)) == (200, {"live": True})


@pytest.mark.parametrize(("ready", "expected"), [(True, 200), (False, 503)])
def test_ready(server: HealthServer, daemon: Daemon, ready: bool, expected: int) -> None:
    daemon.ready = ready
    status, content_type, body = ask(server, "/ready?verbose")
    assert (status, content_type) == (expected, "application/json")
    assert json.loads(body) == {"ready": ready, "lsn": "0/16B3748"}


def test_ready_that_fails_is_not_ready(server: HealthServer, daemon: Daemon) -> None:
    daemon.broken = True
    status, _, body = ask(server, "/ready")
    assert (status, json.loads(body)) == (503, {"ready": False, "error": "RuntimeError"})


def test_unknown_page_names_the_pages(server: HealthServer) -> None:
    status, _, body = ask(server, "/")
    assert status == 404
    assert json.loads(body)["pages"] == ["/metrics", "/live", "/ready"]


def test_head_has_no_body(server: HealthServer) -> None:
    assert ask(server, "/live", "HEAD")[::2] == (200, b"")


def test_other_methods_are_refused(server: HealthServer) -> None:
    assert ask(server, "/live", "POST")[0] == 501


def test_two_requests_on_one_connection(server: HealthServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(2):
        connection.request("GET", "/live")
        assert connection.getresponse().read() == b'{"live": true}\n'
    connection.close()


def test_a_client_that_says_nothing_blocks_nobody(server: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)):
        assert ask(server, "/live")[0] == 200


def test_taken_port_is_the_operators_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: .*[Aa]ddress already in use") as caught:
            HealthServer("127.0.0.1", port, BridgeMetrics().registry, lambda: (True, {})).start()
    assert "0 picks a free port" in caught.value.remedy


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "ü..b"])
def test_unknown_host_is_the_operators_to_change(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        HealthServer(host, 0, BridgeMetrics().registry, lambda: (True, {})).start()


def test_close_frees_the_port_and_may_come_twice() -> None:
    server = HealthServer("127.0.0.1", 0, BridgeMetrics().registry, lambda: (True, {}))
    server.start()
    port = server.port
    server.close()
    server.close()
    with HealthServer("127.0.0.1", port, BridgeMetrics().registry, lambda: (True, {})) as again:
        assert ask(again, "/live")[0] == 200


def test_ipv6_loopback() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with HealthServer("::1", 0, BridgeMetrics().registry, lambda: (True, {})) as server:
        connection = http.client.HTTPConnection("::1", server.port, timeout=10)
        connection.request("GET", "/live")
        assert connection.getresponse().status == 200
        connection.close()
