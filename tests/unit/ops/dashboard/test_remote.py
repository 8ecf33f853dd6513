"""A dashboard that is shown by another one, over real HTTP."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cdc.base.daemon.http import HealthServer
from cdc.base.daemon.pages import Pages
from cdc.base.errors import ConfigError
from cdc.ops.dashboard.board import Board
from cdc.ops.dashboard.door import Door
from cdc.ops.dashboard.pages import DashboardPages
from cdc.ops.dashboard.remote import RemoteDeployment, Unreachable
from tests.support.waiting import eventually
from tests.unit.ops.dashboard.test_pages import Deployment

TOKEN = "overview-0123456789"


def inspect(number: int, table: str, key: str) -> dict[str, Any]:
    return {"asked": [number, table, key]}


@pytest.fixture
def url(tmp_path: Path) -> Generator[str, None, None]:
    path = tmp_path / "tokens.yaml"
    path.write_text(f"overview: {{token: {TOKEN}, metrics: true, tables: [public.orders]}}\n")

    @contextmanager
    def pages(_: CollectorRegistry) -> Generator[Pages, None, None]:
        board = Board([Deployment()])
        board.start()
        yield DashboardPages(board, Door("127.0.0.1", str(path), "http.tokens_file"), inspect)
        board.close()

    with HealthServer("127.0.0.1", 0, CollectorRegistry(), lambda: (True, {}), more=pages) as server:
        yield f"http://127.0.0.1:{server.port}/"


def test_what_it_shows_and_knows(url: str) -> None:
    remote = RemoteDeployment(url, TOKEN)
    eventually(lambda: remote.look(is_watched=True)["name"] == "shop")
    assert remote.ask_key("table=public.orders&key=a%26b") == {"asked": [0, "public.orders", "a&b"]}


def test_one_that_wants_a_token(url: str) -> None:
    with pytest.raises(Unreachable) as caught:
        RemoteDeployment(url, "wrong-0123456789abcd").look(is_watched=True)
    assert "This token is not in http.tokens_file." in caught.value.message
    assert "CDC_DASHBOARD_TOKEN" in caught.value.remedy


def test_one_that_is_not_there_or_is_something_else(url: str) -> None:
    with pytest.raises(Unreachable, match=r"does not answer: .*refused"):
        RemoteDeployment("http://127.0.0.1:1", "").look(is_watched=True)
    with pytest.raises(Unreachable, match="refuses"):
        RemoteDeployment(f"{url}other", TOKEN).look(is_watched=True)


def test_what_is_no_url() -> None:
    with pytest.raises(ConfigError, match="invalid URL of a dashboard"):
        RemoteDeployment("ftp://host", "")
