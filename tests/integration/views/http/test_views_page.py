"""Every example of docs/views.md is asked, and answers as the page says."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import closing, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from cdc.base.web.problem import KINDS
from cdc.views.store.open import open_store
from cdc.views.table.facts import State
from tests.architecture.pages import page
from tests.architecture.tree import ROOT
from tests.integration.views.http.conftest import Serve, planted
from tests.support.planted_view import PlantedView

ADDRESS = "http://127.0.0.1:8090"
TEXT = (ROOT / "docs/views.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sh\n(curl .*?)\n```(?:\n\n```json\n(.*?)\n```)?", TEXT, re.DOTALL)


@pytest.fixture
def client(view: PlantedView, serve: Serve) -> httpx.Client:
    return serve(view.store, aliases={"/users": "public.users"})


def ask(client: httpx.Client, command: str) -> httpx.Response:
    """What curl would do."""
    _, *words = shlex.split(command)
    path = next(word for word in words if word.startswith(ADDRESS)).removeprefix(ADDRESS)
    options = dict(pairwise(words))
    if "-d" in options:
        return client.post(path, content=options["-d"], headers={"Content-Type": "application/x-www-form-urlencoded"})
    if "--data-urlencode" in options:
        name, _, value = options["--data-urlencode"].partition("=")
        return client.get(path, params={name: value})
    return client.get(path)


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example(client: httpx.Client, command: str, shown: str) -> None:
    if "/watch" in command:
        with client.stream("GET", command.rpartition(ADDRESS)[2]) as got:
            assert next(got.iter_lines()) == "event: row"
        return
    got = ask(client, command)
    if "as_of" in command:
        assert got.json()["type"] == "no-history"  # the configuration of this test keeps none
        return
    assert got.status_code == 200, got.text
    if shown:
        expected: Any = orjson.loads(shown)
        said = got.json()
        if isinstance(expected, dict) and expected.get("after") == "…":
            said["after"] = said["after"] and "…"
        assert said == expected


def test_every_kind_of_problem_is_explained() -> None:
    rows = page("docs/views.md").rows("type")
    assert [(row[0].strip("`"), int(row[1])) for row in rows] == [(kind, status) for kind, (status, _) in KINDS.items()]


def test_every_state_is_explained() -> None:
    assert tuple(row[0].strip("`") for row in page("docs/views.md").rows("state")) == State.__args__  # type: ignore[attr-defined]  # what a Literal allows


def test_every_header_is_explained(client: httpx.Client) -> None:
    explained = {row[0].strip("`").lower() for row in page("docs/views.md").rows("header")}
    got = client.get("/v1/tables/public.users/rows/1")
    sent = {name for name in got.headers if name.startswith("cdc-") or name == "etag"}
    assert explained == sent | {"cdc-reason"}


def test_the_example_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store("view/tables")) as store:
        planted(store)
    shown = io.StringIO()
    with redirect_stdout(shown):
        exec(compile(page("docs/views.md").fences("python")[0], "docs/views.md", "exec"), {})
    row, rows, count, is_shown, change = shown.getvalue().splitlines()
    assert row == """b'{"id":1,"name":"Ada","city":"London"}' exact 0/1030"""
    assert rows.count("eu") == 3
    assert (count, is_shown) == ("3", "False")
    assert "Ada" in change
