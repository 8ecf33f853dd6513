"""A server that takes what it is sent and answers nothing holds up no stop, also while somebody looks at the page."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc.lab.stack import Kafka, PostgresServer
from cdc.lab.stack.embedded import free_port
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import deployed
from tests.support.process_tree import family, send
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database, OwnStack, fresh_database
from tests.support.waiting import eventually

LATE_S = 20.0
"""An idle process ends in a second or two; a busy machine gets ten times that."""
TABLE = Path("/proc/net/tcp")

pytestmark = pytest.mark.skipif(not TABLE.exists(), reason="only Linux tells what a server has not read")


def unanswered(port: int) -> int:
    """Connections whose server has not read what it was sent."""
    connections = [line.split() for line in TABLE.read_text().splitlines()[1:]]
    return sum(
        int(local.split(":")[1], 16) == port and state == "01" and int(queues.split(":")[1], 16) > 0
        for _, local, _, state, queues, *_ in connections
    )


@contextmanager
def hanging(pid: int) -> Iterator[None]:
    """As a machine whose disk is gone: connections stay, and nobody answers."""
    tree = family(pid)
    send(tree, signal.SIGSTOP)
    try:
        yield
    finally:
        send(tree, signal.SIGCONT)


@contextmanager
def page(port: int) -> Iterator[None]:
    """Somebody looks."""

    def connected() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except ConnectionRefusedError:
            return None

    with eventually(connected) as connection:
        connection.sendall(b"GET /dashboard/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield


def _stacks(server: PostgresServer, processes: Sequence[CdcProcess]) -> str:
    """What everybody does, for the message of a test that waited in vain."""
    return "\n".join([f"{unanswered(server.port)} wait", *(f"{each.tail()}\n{each.stacks()}" for each in processes)])


def test_a_source_that_hangs(own_stack: OwnStack, kafka: Kafka, replica: Database, tmp_path: Path) -> None:
    """The watchers of the bridge wait for an answer; the pages wait for a connection, for as long as the DSN says."""
    server, ports = own_stack.postgres(), [free_port() for _ in range(4)]
    sections: dict[str, dict[str, Any]] = {
        "http": {"bridge_port": ports[0], "sink_port": ports[1]},
        "view": {"store": str(tmp_path / "view")},
        "serve": {"port": ports[2]},
    }
    with fresh_database(server) as source, ExitStack() as ends:
        source.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
        live = ends.enter_context(deployed(source, kafka.bootstrap, replica, tmp_path, sections, CdcProcess))
        live.settings["source"]["dsn"] += "?connect_timeout=300"
        live.write()
        serve = ServeProcess(live.config, tmp_path / "serve.log", "--no-feed")
        overview = ServeProcess(live.config, tmp_path / "over.log", "--port", str(ports[3]), command="dashboard")
        processes: list[CdcProcess] = [live.bridge, live.sink, serve, overview]
        live.start()
        for each in (serve, overview):
            ends.callback(each.kill)
            each.start()
        live.wait_mirrored()
        with ExitStack() as pages:
            for port in ports:
                pages.enter_context(page(port))
            with hanging(server.pid):
                eventually(lambda: unanswered(server.port) >= len(ports) + 2, 60, partial(_stacks, server, processes))
                for process in processes:
                    process.signal(signal.SIGTERM)
                codes = [process.wait(LATE_S) for process in processes]
    assert codes == [0, 0, 0, 0]
