"""The embedded Redis: what outlives a kill, who can reach it, and what it says of a wrong setting."""

from __future__ import annotations

import socket

import psutil
import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import RedisServer, embedded
from cdc.lab.stack.embedded import HOST


def ask(server: RedisServer, command: str) -> str:
    with socket.create_connection((HOST, server.port), timeout=10) as connection:
        connection.sendall(command.encode() + b"\r\n")
        return connection.recv(1000).decode()


def test_what_is_persistent_outlives_a_kill(own_stack):
    server = own_stack.redis(persistent=True)
    assert ask(server, "SET name Ada") == "+OK\r\n"
    server.kill()
    assert server.pid == 0
    server.restart()
    assert ask(server, "GET name") == "$3\r\nAda\r\n"
    server.close()
    assert not server.directory.exists()


def test_otherwise_it_begins_empty_and_writes_no_file(own_stack):
    server = own_stack.redis()
    ask(server, "SET name Ada")
    server.restart()
    assert ask(server, "GET name") == "$-1\r\n"
    assert [each.name for each in server.directory.iterdir()] == ["server.log"]


def test_only_this_machine_reaches_it(own_stack):
    server = own_stack.redis()
    listening = [each for each in psutil.Process(server.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.ip for each in listening} == {HOST}


def test_a_wrong_setting_tells_the_servers_own_words():
    with pytest.raises(StackError, match="argument must be a memory value"):
        RedisServer.open(settings={"maxmemory": "much"})


def test_a_port_taken_meanwhile_is_left_to_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    free = embedded.free_port()
    with socket.create_server((HOST, 0)) as taken:
        given = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(embedded, "free_port", lambda: next(given))
        with RedisServer.open() as server:
            assert server.port == free
            assert ask(server, "PING") == "+PONG\r\n"
