"""``cdc serve`` as processes: how it ends, what it survives, and that several answer as one."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import psutil
import pytest
import yaml

from cdc.views.store.open import open_store
from tests.integration.views.http.conftest import ADA, planted
from tests.support.planted_view import PlantedView
from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually

ROW = "/v1/tables/public.users/rows/1"

Start: TypeAlias = Callable[..., ServeProcess]


@pytest.fixture
def planted_folder(tmp_path: Path) -> Iterator[PlantedView]:
    """The tables of a view in a folder, as a feed keeps them there."""
    store = open_store(str(tmp_path / "view" / "tables"))
    yield planted(store)
    store.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services over the folder; ``start("--workers", "2", view={…})``."""
    with ExitStack() as stack:
        started: list[ServeProcess] = []

        def make(*options: str, **sections: Any) -> ServeProcess:
            content = {
                "name": "shop",
                "kafka": {"bootstrap": "127.0.0.1:1"},
                "view": {"store": "view"},
                "serve": {"port": 0},
                **sections,
            }
            path = tmp_path / f"{len(started)}.yaml"
            path.write_text(yaml.safe_dump(content))
            process = ServeProcess(path, tmp_path / f"{len(started)}.log", *options)
            started.append(process)
            process.start()
            stack.callback(process.kill)
            return process

        yield make


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_it_ends_cleanly_and_tells_those_who_watch(
    planted_folder: PlantedView, start: Start, number: signal.Signals
) -> None:
    service = start("--no-feed")
    with service.client() as client, client.stream("GET", "/v1/tables/public.users/watch") as got:
        lines = got.iter_lines()
        eventually(lambda: next(lines) == "event: snapshot")
        service.signal(number)
        rest = list(lines)
    assert rest[-3:-1] == ["event: end", 'data: {"reason":"the service stops"}']
    assert service.wait() == 0
    assert "Traceback" not in service.said(), service.said()


def test_a_process_that_is_killed_is_replaced(planted_folder: PlantedView, start: Start) -> None:
    service = start("--no-feed", "--workers", "2")
    with service.client() as client:
        assert client.get(ROW).status_code == 200
        before = service.wait_children(2)
        before[0].kill()
        service.wait_said("a serving process died; starting another")
        eventually(lambda: before[0].pid not in {each.pid for each in service.children()})
        service.wait_children(2)
        for _ in range(20):
            with httpx.Client(base_url=client.base_url) as fresh:
                assert fresh.get(ROW).json() == ADA
    assert '"exit_code": -9' in service.said()
    service.stop()


def test_a_process_that_crashed_has_its_store_looked_through(
    planted_folder: PlantedView, start: Start, tmp_path: Path
) -> None:
    """It was started again and again, and crashed again; nobody was told why."""
    service = start("--no-feed")
    with service.client() as client:
        assert client.get(ROW).status_code == 200
        [before] = service.wait_children(1)
        data = tmp_path / "view" / "tables" / "data.mdb"
        damaged = data.read_bytes().replace(b'"amount":"1.50"', b'"amount":"9.99"')  # of rows that nobody asks for
        with data.open("r+b") as file:
            file.write(damaged)
        before.send_signal(signal.SIGBUS)
        service.wait_said("the store is damaged")
        eventually(lambda: before.pid not in {each.pid for each in service.children()})
    assert '"signal": "SIGBUS"' in service.said()
    assert "Fatal Python error: Bus error" in service.said()
    with service.client() as client:
        got = client.get(ROW)
        assert (got.status_code, got.json()["type"]) == (503, "store-away")
        assert "is damaged: an entry of " in got.json()["detail"]
    service.stop()


def test_nothing_is_left_when_the_parent_is_killed(planted_folder: PlantedView, start: Start) -> None:
    service = start("--no-feed", "--workers", "2")
    with service.client() as client:
        client.get(ROW)
    everything = psutil.Process(service.pid).children(recursive=True)
    assert len(service.wait_children(2)) == 2
    service.kill()
    _, alive = psutil.wait_procs(everything, timeout=20)
    assert alive == []


def test_all_processes_show_the_same_metrics(planted_folder: PlantedView, start: Start) -> None:
    service = start("--no-feed", "--workers", "2")
    service.wait_children(2)
    with service.client() as client:
        address = client.base_url
    for _ in range(30):
        with httpx.Client(base_url=address, timeout=30) as fresh:  # another connection: another process, as it comes
            assert fresh.get(ROW).status_code == 200
    for _ in range(5):
        with httpx.Client(base_url=address, timeout=30) as fresh:
            assert 'cdc_serve_requests_total{page="row",status="2xx"} 30.0' in fresh.get("/metrics").text
    service.stop()


def test_a_store_that_is_made_while_it_is_served(tmp_path: Path, start: Start) -> None:
    service = start("--no-feed")
    with service.client() as client:
        assert client.get(ROW).json()["type"] == "not-ready"
        store = open_store(str(tmp_path / "view" / "tables"))
        planted(store)
        assert client.get(ROW).json() == ADA
        store.close()
    service.stop()


def test_a_port_that_is_taken(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = start("--port", str(taken.getsockname()[1]))
        said = service.refusal(2)
    assert "cannot listen on 127.0.0.1:" in said
    assert "choose another serve.host or serve.port, or --port; 0 picks a free port" in said


def test_a_host_that_no_name_can_be(start: Start) -> None:
    """It ended with a traceback."""
    assert "cannot listen on ü..b:" in start(serve={"host": "ü..b"}).refusal(2)


@pytest.mark.parametrize("option", [("--workers", "2"), ("--no-feed",)])
def test_a_store_in_memory_has_one_process_that_does_everything(start: Start, option: tuple[str, ...]) -> None:
    said = start(*option, view={"store": "memory"}).refusal(2)
    assert "a store in memory belongs to one process, which fills it and answers from it" in said


def test_a_view_that_is_not_configured(tmp_path: Path, start: Start) -> None:
    assert "there is no view section" in start(view=None).refusal(2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tokens_file": "none.yaml"}, "serve.tokens_file: "),
        ({"tls_cert": "0.yaml", "tls_key": "0.yaml"}, "0.yaml: [SSL] PEM lib"),
    ],
)
def test_files_that_are_wrong(start: Start, settings: dict[str, Any], words: str) -> None:
    assert words in start(serve={"port": 0, **settings}).refusal(2)


def test_a_port_that_everybody_reaches_without_a_token_is_warned_of(planted_folder: PlantedView, start: Start) -> None:
    service = start("--no-feed", serve={"port": 0, "host": "0.0.0.0"})
    service.wait_said("anybody who can reach the port can read every table")
    with service.client():
        service.stop()
