"""Ports of embedded servers."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from docker.utils import convert_port_bindings

from cdc.base.errors import StackError
from cdc.lab.stack import embedded
from cdc.lab.stack.containers import publish
from cdc.lab.stack.embedded import free_port


def test_a_port_lies_outside_the_range_of_outgoing_connections():
    assert all(20000 <= free_port() < 32000 for _ in range(50))


def test_a_port_in_use_is_not_given(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(embedded, "PORTS", (port, port + 1))
        with pytest.raises(StackError, match="no free port"):
            free_port()


def test_containers_are_published_on_the_loopback_only() -> None:
    container = SimpleNamespace(ports={})
    publish(container, 5432)
    publish(container, 9092, 29092)
    assert convert_port_bindings(container.ports) == {
        "5432/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}],
        "9092/tcp": [{"HostIp": "127.0.0.1", "HostPort": "29092"}],
    }
