"""Ports of embedded servers."""

from __future__ import annotations

import socket

import pytest

from cdc.errors import StackError
from cdc.stack import embedded
from cdc.stack.embedded import free_port


def test_a_port_lies_outside_the_range_of_outgoing_connections():
    assert all(20000 <= free_port() < 32000 for _ in range(50))


def test_a_port_in_use_is_not_given(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(embedded, "_PORTS", (port, port + 1))
        with pytest.raises(StackError, match="no free port"):
            free_port()
