"""The embedded schema registry: what outlives a kill, who can reach it, and what it says of a wrong setting."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import psutil
import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import RegistryServer, embedded
from cdc.lab.stack.embedded import HOST
from tests.support.servers import BASIC_AUTH

SCHEMA = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]})


def ask(server: RegistryServer, path: str, content: Any = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"{server.url}/{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_ids_outlive_a_kill_and_a_stop_and_only_this_machine_reaches_it(own_stack):
    server = own_stack.registry()
    assert ask(server, "subjects") == []
    known = ask(server, "subjects/orders-value/versions", {"schema": SCHEMA})["id"]

    listening = [each for each in psutil.Process(server.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.ip.removeprefix("::ffff:") for each in listening} == {HOST}

    server.kill()
    server.restart()
    assert json.loads(ask(server, f"schemas/ids/{known}")["schema"]) == json.loads(SCHEMA)
    next_one = ask(server, "subjects/others-value/versions", {"schema": '"string"'})["id"]
    assert next_one != known

    server.stop()
    assert server.pid == 0
    server.restart()
    assert ask(server, "subjects/orders-value/versions", {"schema": SCHEMA})["id"] == known
    assert ask(server, "subjects/others-value/versions", {"schema": '"string"'})["id"] == next_one
    server.close()
    assert not server.directory.exists()


def test_it_may_ask_for_a_password(own_stack):
    server = own_stack.registry(BASIC_AUTH)
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(server, "subjects")
    with refused.value as answer:
        assert answer.code == 401


def test_a_wrong_setting_tells_the_servers_own_words():
    with pytest.raises(StackError, match=r"many.*quarkus\.http\.io-threads|quarkus\.http\.io-threads.*many"):
        RegistryServer.open(settings={"quarkus.http.io-threads": "many"})


def test_a_port_taken_meanwhile_is_left_to_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    free = embedded.free_port()
    with socket.create_server((HOST, 0)) as taken:
        given = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(embedded, "free_port", lambda: next(given))
        with RegistryServer.open() as server:
            assert server.port == free
            assert ask(server, "subjects") == []
