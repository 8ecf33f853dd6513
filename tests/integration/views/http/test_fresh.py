"""Answers that must show a commit: who asks with ``min_lsn`` never reads an older row."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cdc.base.lsn import LSN
from cdc.views.store.open import open_store
from cdc.views.store.port import Store
from tests.integration.views.http.conftest import ADA, Serve, planted
from tests.support.planted_view import SOURCE, PlantedView, users
from tests.support.servers import Database

ROW = "/v1/tables/public.users/rows/1"


def test_a_commit_that_is_shown_is_not_waited_for(view: PlantedView, serve: Serve) -> None:
    got = serve(view.store).get(f"{ROW}?min_lsn={LSN(view.lsn)}&timeout=0&source={SOURCE}")
    assert (got.status_code, got.headers["cdc-lsn"]) == (200, str(LSN(view.lsn)))


def test_a_commit_that_comes_is_waited_for(store: Store, serve: Serve) -> None:
    view = planted(store)
    client = serve(store)
    coming = LSN(view.lsn + 0x10)
    paths = [
        f"{ROW}?min_lsn={coming}",
        f'/v1/tables/public.users/rows?key={{"id":1}}&min_lsn={coming}',
        f"/v1/tables/public.users/rows?limit=1&min_lsn={coming}",
    ]
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(client.get, path) for path in paths]
        batch = threads.submit(
            client.post, f"/v1/tables/public.users/rows:batchGet?min_lsn={coming}", json={"keys": [{"id": 1}]}
        )
        assert client.get(f"{ROW}?min_lsn={coming}&timeout=0").status_code == 412  # it is not there yet
        view.put("public.users", {**ADA, "city": "Turin"})
        answers = [each.result() for each in (*waiting, batch)]
    assert [each.status_code for each in answers] == [200] * 4
    assert all("Turin" in each.text for each in answers)


def test_a_commit_that_does_not_come_is_told_with_where_the_view_is(view: PlantedView, serve: Serve) -> None:
    view.say(caught_up_at=time.time())
    got = serve(view.store).get(f"{ROW}?min_lsn=F/0&timeout=0.1")
    said = got.json()
    assert (got.status_code, said["type"], said["lsn"], got.headers["cdc-lsn"]) == (412, "not-yet", "0/1030", "0/1030")
    assert got.headers["retry-after"] == "1"
    assert said["detail"].startswith("After 0.1 s the view shows everything before 0/1030, not F/0. ")
    assert "or the LSN is from another server." in said["detail"]


def test_a_view_that_is_behind_says_so(view: PlantedView, serve: Serve) -> None:
    view.say(caught_up_at=time.time() - 3600)
    said = serve(view.store).get(f"{ROW}?min_lsn=F/0&timeout=0").json()
    assert "The view is behind its topics" in said["detail"]


def test_a_view_that_is_not_filled_any_more_says_so_with_every_answer(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    for age_s, state in ((30, "exact"), (3600, "behind"), (0, "exact")):
        view.say(caught_up_at=time.time() - age_s)
        for path in (ROW, "/v1/tables/public.users/rows", "/v1/tables/public.users/count"):
            got = client.get(path)
            assert (got.status_code, got.headers["cdc-state"]) == (200, state)
            assert got.headers["cdc-lsn"] == str(LSN(view.lsn))
            assert abs(float(got.headers["cdc-age"]) - age_s) < 20
            assert ("is not known to hold all of its topic" in got.headers.get("cdc-reason", "")) == (state == "behind")
        assert client.get("/v1/tables/public.users").json()["state"] == state
        assert client.get("/ready").json()["state"] == state
        assert f'cdc_serve_table_state{{cdc_serve_table_state="{state}",table="public.users"}} 1.0' in (
            client.get("/metrics").text
        )


@pytest.mark.parametrize("state", ["suspect", "loading"])
def test_rows_that_are_not_kept_up_to_date_never_pass_for_new_ones(view: PlantedView, serve: Serve, state: str) -> None:
    """Other tables follow the source meanwhile."""
    view.say(users(state=state, reason="the topic is another one"))
    client, now = serve(view.store), LSN(view.lsn)
    old = client.get(ROW)
    assert (old.status_code, old.headers["cdc-state"]) == (200, state)
    assert {"cdc-lsn", "cdc-age"}.isdisjoint(old.headers)
    for path in (ROW, "/v1/tables/public.users/rows", "/v1/tables/public.users/count"):
        got = client.get(f"{path}?min_lsn={now}&timeout=0")
        assert (got.status_code, got.json()["type"], got.json()["lsn"]) == (412, "not-yet", None)
        assert f"public.users is {state}, so its rows may be older: the topic is another one." in got.json()["detail"]
    assert client.get(f"/v1/tables/public.stock/rows/eu/1?min_lsn={now}&timeout=0").status_code == 200
    view.say(users())
    got = client.get(f"{ROW}?min_lsn={now}&timeout=0")
    assert (got.status_code, got.headers["cdc-lsn"]) == (200, str(now))


def test_the_lsn_of_another_timeline(view: PlantedView, serve: Serve) -> None:
    got = serve(view.store).get(f"{ROW}?min_lsn=0/1&source=7301,2,16384")
    assert (got.status_code, got.json()["type"], got.json()["source"]) == (409, "other-source", SOURCE)
    assert "after a failover or a restore, earlier LSNs mean nothing" in got.json()["detail"]


def test_after_a_failover_a_view_of_the_old_timeline_does_not_pass_for_new(view: PlantedView, serve: Serve) -> None:
    """The new primary's LSN was below that of the view, which still followed the old one: the old row was answered."""
    client, written = serve(view.store), LSN(view.lsn - 0x10)
    assert client.get(f"{ROW}?min_lsn={written}&timeout=0").status_code == 200  # nobody can tell
    got = client.get(f"{ROW}?min_lsn=2:{written}&timeout=0")
    assert (got.status_code, got.json()["type"]) == (412, "not-yet")
    assert "The view still follows timeline 1" in got.json()["detail"]
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.get, f"{ROW}?min_lsn=2:{written}")
        view.put("public.users", {**ADA, "city": "Turin"})
        view.say(source=SOURCE.replace(",1,", ",2,"))
        assert (waiting.result().status_code, waiting.result().json()["city"]) == (200, "Turin")
    got = client.get(f"{ROW}?min_lsn=1:{written}&timeout=0")
    assert (got.status_code, got.json()["type"]) == (409, "other-source")


def test_what_an_answer_showed_can_be_asked_for_again(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    token = client.get(ROW).headers["cdc-min-lsn"]
    assert token == f"1:{LSN(view.lsn)}"
    for path in (ROW, "/v1/tables/public.users/rows", "/v1/tables/public.users/count"):
        assert client.get(path, params={"min_lsn": token, "timeout": 0}).status_code == 200


def test_how_the_documentation_asks_postgres_for_timeline_and_lsn(
    database: Database, view: PlantedView, serve: Serve
) -> None:
    page = Path(__file__).parents[4] / "docs" / "views.md"
    statement = page.read_text().partition("```sql\n")[2].partition("```")[0]
    [[told]] = database.execute(statement)
    timeline, _, lsn = told.partition(":")
    assert timeline == "1"
    assert abs(LSN.parse(lsn) - LSN.parse(database.execute("select pg_current_wal_lsn()::text")[0][0])) < 1 << 24
    view.say(lsn=int(LSN.parse(lsn)))
    assert serve(view.store).get(f"{ROW}?min_lsn={told}&timeout=0").status_code == 200


def test_a_thousand_commits_are_each_read_back_through_either_of_two_services(tmp_path: Path, serve: Serve) -> None:
    writer = open_store(str(tmp_path / "view"))
    view = planted(writer)
    clients = [serve(open_store(str(tmp_path / "view"), read_only=True)) for _ in range(2)]
    for number in range(1000):
        view.put("public.users", {"id": 1, "name": "Ada", "city": str(number)})
        got = clients[number % 2].get(f"{ROW}?min_lsn={LSN(view.lsn)}")
        assert got.json()["city"] == str(number), f"commit {number}"


@pytest.mark.parametrize("path", [ROW, "/v1/tables/public.users/count"])
def test_both_services_answer_alike(tmp_path: Path, serve: Serve, path: str) -> None:
    planted(open_store(str(tmp_path / "view")))
    answers = [serve(open_store(str(tmp_path / "view"), read_only=True)).get(path) for _ in range(2)]
    told = [{**each.headers, "date": "", "cdc-age": ""} for each in answers]
    assert answers[0].content == answers[1].content
    assert told[0] == told[1]
