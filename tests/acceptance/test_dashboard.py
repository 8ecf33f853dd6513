"""The dashboard as the person on call sees it: a real browser, desktop and phone, light and dark, keyboard only."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import yaml
from playwright.sync_api import Browser, Dialog, Page, Request, expect

from cdc.base.config import load
from cdc.lab.stack import Kafka, Postgres
from cdc.lab.stack.embedded import free_port
from cdc.ops.dashboard.deployment import ConfiguredDeployment
from tests.support.browser import open_browser
from tests.support.deployment import Deployment, deployed
from tests.support.file_replicas import DuckdbReplica, FileReplica, SqliteReplica, deployed_to_file
from tests.support.serve_process import ServeProcess
from tests.support.servers import fresh_database
from tests.support.waiting import eventually

DESKTOP, PHONE = (1280, 900), (390, 844)
HOSTILE = "<script>alert(1)</script>"


class Shown(NamedTuple):
    """A deployment, and the address of its page."""

    deployment: Deployment
    bridge: str
    sink: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def shown(postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path_factory: Any) -> Iterator[Shown]:
    """Bridge and sink with a few tables, one of them called as an attacker would call it."""
    ports = free_port(), free_port()
    with fresh_database(postgres) as source, fresh_database(other_postgres) as replica:
        with source.connect() as conn:
            conn.execute("create table orders (id int primary key, status text, total numeric)")
            conn.execute("create table stock (region text, item int, amount int, primary key (region, item))")
            conn.execute(f'create table "{HOSTILE}" (id int primary key, note text)')
            conn.execute("insert into orders select i, 'new', i * 1.5 from generate_series(1, 2000) i")
            conn.execute("insert into stock select 'eu', i, i from generate_series(1, 300) i")
            conn.execute(f"insert into \"{HOSTILE}\" values (1, '<img src=x onerror=alert(1)>')")
        sections: dict[str, dict[str, Any]] = {
            "http": {"bridge_port": ports[0], "sink_port": ports[1]},
            "topics": {"history": ["public.orders"], "partitions": 1},
        }
        with deployed(source, kafka.bootstrap, replica, tmp_path_factory.mktemp("desk"), sections) as deployment:
            deployment.start()
            deployment.wait_backfilled()
            source.execute("update orders set status = 'paid' where id = 17")
            deployment.wait_mirrored()
            yield Shown(deployment, *(f"http://127.0.0.1:{port}/" for port in ports))


class Seen:
    """A page, and all that it said or asked for."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.strange: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._refuse)
        page.on("request", partial(self._look_at, url))
        page.goto(url)

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def _look_at(self, url: str, request: Request) -> None:
        if not request.url.startswith(url):
            self.strange.append(request.url)

    def violations(self) -> list[str]:
        """What axe-core finds."""
        self.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [f"{each['id']}: {node['html']} {node['failureSummary']}" for each in found for node in each["nodes"]]

    def sideways(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width


@contextmanager
def visit(
    browser: Browser, url: str, size: tuple[int, int] = DESKTOP, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Seen]:
    viewport: Any = {"width": size[0], "height": size[1]}
    page = browser.new_page(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    try:
        yield Seen(page, url)
    finally:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page(browser: Browser, shown: Shown, tmp_path: Path, size: tuple[int, int], scheme: Any) -> None:
    with visit(browser, shown.bridge, size, scheme) as seen:
        page = seen.page
        expect(page.locator("#verdict")).to_have_text(re.compile("All is well|warning"), timeout=20_000)
        expect(page.locator("#tables tbody tr")).to_have_count(3)
        expect(page.locator("#topics tbody tr")).to_have_count(3, timeout=20_000)
        expect(page.locator(".box.replica .state")).to_have_text("exact")
        expect(page.locator(".chart:visible").first).to_be_visible()
        page.screenshot(path=tmp_path / f"dashboard-{size[0]}-{scheme}.png", full_page=True)
        assert seen.violations() == []
        assert seen.sideways() <= 0
        assert seen.complaints == []
        assert seen.strange == []


def test_the_first_look_has_rates(shown: Shown) -> None:
    """They were dashes until the second one: the progress topic tells what was written before."""
    deployment = shown.deployment
    for note in "ab":
        deployment.source.execute("update orders set status = %s where id = 18", [note])
        deployment.wait_published()
    looks = ConfiguredDeployment(lambda: load(deployment.config, os.environ), None)
    try:
        first, second = looks.look(is_watched=True), looks.look(is_watched=True)
    finally:
        looks.close()
    assert first["figures"]["wal_bytes_s"] > 0
    assert first["figures"]["published_bytes_s"] > 0
    assert all(rate >= 0 for _, rate in first["before"])
    assert second["before"] == []


def test_no_name_can_run(browser: Browser, shown: Shown) -> None:
    with visit(browser, shown.bridge) as seen:
        expect(seen.page.get_by_role("rowheader", name=f"public.{HOSTILE}", exact=True)).to_be_visible(timeout=20_000)
        assert seen.page.locator("main img").count() == 0
        assert seen.complaints == []
        # Were one to get through, the policy would stop it, loudly.
        with pytest.raises(Exception, match="TrustedHTML"):
            seen.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b onclick=\"alert(2)\">x</b>')")


def test_with_the_keyboard_alone(browser: Browser, shown: Shown) -> None:
    with visit(browser, shown.bridge) as seen:
        page = seen.page
        expect(page.locator("#tables tbody tr")).to_have_count(3, timeout=20_000)
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert {"back", "find", "unsettled", "Table", "Rows applied"} <= reached
        page.locator("#find").focus()
        page.keyboard.type("ORD")
        expect(page.locator("#tables tbody tr")).to_have_count(1)
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")
        page.get_by_role("button", name="Rows applied").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#tables tbody tr th").first).to_have_text("public.orders")
        page.locator("#back").focus()
        page.keyboard.press("Home")
        expect(page.locator("#moment")).not_to_have_text("now")
        assert seen.complaints == []


def test_an_alarm_comes_with_its_remedy_and_goes_when_it_is_mended(browser: Browser, shown: Shown) -> None:
    deployment = shown.deployment
    with visit(browser, shown.bridge) as seen:
        page = seen.page
        expect(page.locator(".box.replica .state")).to_have_text("exact", timeout=20_000)
        deployment.replica.execute("alter table public.stock add constraint small check (amount < 1000)")
        deployment.source.execute("update stock set amount = 5000 where item = 7")
        alarm = page.locator(".alarm", has_text="table public.stock is stopped")
        expect(alarm).to_be_visible(timeout=30_000)
        expect(alarm.locator(".sign")).to_have_text("Error")
        told = next(each for each in problems(deployment) if "public.stock" in each["text"])
        assert alarm.locator(".alarm-text").inner_text() == told["text"]
        said = [
            alarm.locator(each).inner_text() for each in (".remedy-text", ".remedy") if alarm.locator(each).is_visible()
        ]
        assert said[0] == told["remedy"]
        expect(page.locator("#tables tbody tr").first).to_contain_text("stopped")
        expect(page).to_have_title(re.compile("error"))
        assert seen.violations() == []
        deployment.replica.execute("alter table public.stock drop constraint small")
        deployment.sink.stop()
        deployment.sink.start()
        expect(alarm).to_have_count(0, timeout=30_000)
        assert seen.complaints == []


def test_a_bridge_that_is_down_is_said_by_the_sinks_page_and_by_its_own(browser: Browser, shown: Shown) -> None:
    deployment = shown.deployment
    with visit(browser, shown.sink) as beside, visit(browser, shown.bridge) as own:
        expect(beside.page.locator(".box.bridge .state")).to_have_text("streaming", timeout=20_000)
        expect(own.page.locator("#name")).to_have_text(deployment.name, timeout=20_000)
        deployment.bridge.stop()
        alarm = beside.page.locator(".alarm", has_text=f"no bridge reads slot {deployment.slot()}")
        expect(alarm.locator(".remedy")).to_have_text(f"cdc run -c {deployment.config}", timeout=30_000)
        expect(alarm.locator(".remedy-text")).to_have_text(f"start the bridge: cdc run -c {deployment.config}")
        expect(beside.page.locator(".box.bridge .state")).to_have_text("down")
        expect(own.page.locator(".alarm", has_text="What you see is old")).to_be_visible(timeout=30_000)
        expect(own.page.locator("#tables tbody tr")).to_have_count(3)
        deployment.start_bridge()
        expect(alarm).to_have_count(0, timeout=30_000)
        expect(own.page.locator(".alarm", has_text="What you see is old")).to_have_count(0, timeout=30_000)


def test_a_box_whose_figures_are_old_turns_amber_and_says_how_old(browser: Browser, shown: Shown) -> None:
    """The process that looks stands still: what it said last was green, and stayed green."""
    with visit(browser, shown.bridge) as seen:
        state = seen.page.locator(".box.bridge .state")
        expect(state).to_have_text("streaming", timeout=20_000)
        shown.deployment.bridge.signal(signal.SIGSTOP)
        try:
            for box in ("source", "bridge", "topics", "replica"):
                old = seen.page.locator(f".box.{box} .state")
                expect(old).to_have_text(re.compile(r"^[\d.]+ s old$"), timeout=40_000)
                expect(old).to_have_attribute("data-tone", "warn")
        finally:
            shown.deployment.bridge.signal(signal.SIGCONT)
        expect(state).to_have_text("streaming", timeout=40_000)
        expect(state).to_have_attribute("data-tone", "good")


def test_a_key_is_looked_up_in_topic_source_and_history(browser: Browser, shown: Shown) -> None:
    with visit(browser, shown.bridge) as seen:
        page = seen.page
        expect(page.locator("#tables tbody tr")).to_have_count(3, timeout=20_000)
        look_up(page, "public.orders", "17")
        answer = page.locator("#key-answer")
        expect(answer).to_contain_text("History: 2 of 2 changes", timeout=60_000)
        expect(answer.get_by_role("row", name="status")).to_have_text('status"paid""paid"')
        for said in ("offset", "LSN", "transaction", "update", 'status: "new" → "paid"'):
            expect(answer).to_contain_text(said)
        assert seen.violations() == []
        look_up(page, f"public.{HOSTILE}", "id=1")
        expect(answer).to_contain_text("<img src=x onerror=alert(1)>", timeout=60_000)
        expect(answer).to_contain_text("topics.history does not name the table")
        look_up(page, "public.orders", "seventeen")
        expect(page.locator("#key-busy")).to_contain_text("id is int4, not 'seventeen'", timeout=60_000)
        assert all("400" in each for each in seen.complaints)  # which Chromium says of each answer that is no 2xx


def look_up(page: Page, table: str, key: str) -> None:
    page.locator("#key-table").fill(table)
    page.locator("#key").fill(key)
    page.keyboard.press("Enter")


def test_several_deployments_on_one_page_and_one_that_is_gone(browser: Browser, shown: Shown, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    targets = [str(shown.deployment.config), shown.sink, f"http://127.0.0.1:{ports[1]}"]
    command = [sys.executable, "-m", "cdc", "dashboard", *targets, "--port", str(ports[0])]
    with (tmp_path / "dashboard.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(lambda: b'"url"' in (tmp_path / "dashboard.log").read_bytes())
            with visit(browser, f"http://127.0.0.1:{ports[0]}/") as seen:
                page = seen.page
                name = shown.deployment.name
                tabs = page.locator("#deployments a")
                expect(tabs).to_have_text([re.compile(name), re.compile(name), re.compile("does|http")], timeout=30_000)
                expect(page.locator(".box.bridge .state")).to_have_text("streaming")
                assert seen.violations() == []
                tabs.nth(1).press("Enter")
                expect(tabs.nth(1)).to_have_attribute("aria-current", "true")
                expect(page.locator(".box.replica .state")).to_have_text("exact")
                tabs.nth(2).press("Enter")
                expect(page.locator(".alarm")).to_contain_text(f"{targets[2]} does not answer")
                expect(page.locator(".way")).to_be_hidden()
                assert seen.violations() == []
                assert seen.complaints == []
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_the_view_service_shows_it_too(browser: Browser, shown: Shown, tmp_path: Path) -> None:
    config = tmp_path / "served.yaml"
    view = {"store": "memory", "tables": ["public.orders"]}
    settings = {**shown.deployment.settings, "view": view, "serve": {"port": free_port()}}
    config.write_text(yaml.safe_dump(settings))
    service = ServeProcess(config, tmp_path / "serve.log")
    service.start()
    try:
        with service.client() as client:
            url = f"{client.base_url}/".replace("//", "/").replace(":/", "://")
        with visit(browser, url) as seen:
            expect(seen.page.locator(".box.view .state")).to_have_text("exact", timeout=30_000)
            expect(seen.page.locator("#processes")).to_contain_text("this process")
            assert seen.complaints == []
    finally:
        service.stop()


def problems(deployment: Deployment) -> list[dict[str, str]]:
    """What ``cdc status --json`` says is wrong."""
    said = subprocess.run(
        [sys.executable, "-m", "cdc", "status", "-c", str(deployment.config), "--json"],
        stdout=subprocess.PIPE,
        check=False,
    )
    found: list[dict[str, str]] = json.loads(said.stdout)["problems"]
    return found


@pytest.mark.parametrize("system", ["sqlite", "duckdb"])
def test_the_page_of_a_replica_in_a_file(
    browser: Browser, postgres: Postgres, kafka: Kafka, tmp_path: Path, system: str
) -> None:
    path = tmp_path / "shop.db"
    file: FileReplica = SqliteReplica(path) if system == "sqlite" else DuckdbReplica(path)
    ports = free_port(), free_port()
    sections = {"http": {"bridge_port": ports[0], "sink_port": ports[1]}}
    with fresh_database(postgres) as source:
        source.execute("create table orders (id int primary key, status text)")
        source.execute("insert into orders select i, 'new' from generate_series(1, 2000) i")
        with deployed_to_file(source, kafka.bootstrap, file, tmp_path, sections) as deployment:
            deployment.start()
            deployment.wait_backfilled()
            deployment.wait_mirrored()
            for name, port in zip(("bridge", "sink"), ports, strict=True):
                with visit(browser, f"http://127.0.0.1:{port}/") as seen:
                    expect(seen.page.locator("#verdict")).to_have_text(
                        re.compile("All is well|warning"), timeout=20_000
                    )
                    expect(seen.page.locator("#tables tbody tr")).to_have_count(1)
                    expect(seen.page.locator(".box.replica .state")).to_have_text("exact")
                    expect(seen.page.get_by_text("cdc check is still running")).to_have_count(0, timeout=20_000)
                    seen.page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
                    assert seen.violations() == []
                    assert seen.complaints == []
            deployment.sink.stop()
            with visit(browser, f"http://127.0.0.1:{ports[0]}/") as seen:
                expect(seen.page.locator(".box.replica .state")).to_have_text("down", timeout=20_000)
                seen.page.screenshot(path=tmp_path / "stopped.png", full_page=True)
            deployment.stop()
