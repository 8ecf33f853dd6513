"""From PostgreSQL to an answer: bridge, topics, feed, store and service together."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from cdc.base.lsn import LSN
from tests.support.deployment import Deploy, Deployment
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.waiting import eventually

ROW = "/v1/tables/public.users/rows/1"


@pytest.fixture
def deployment(database: Database, deploy: Deploy) -> Deployment:
    """A bridge that streams two tables, with a history, and a view of it in a folder."""
    database.execute("create table users (id bigint primary key, name text, city text)")
    database.execute("insert into users values (1, 'Ada', 'London'), (2, 'Bob', 'Paris')")
    database.execute("create table levels (level float8 primary key, name text)")
    deployed = deploy(
        source={"tables": ["public.users", "public.levels"]},
        topics={"history": ["public.users", "public.levels"]},
        view={"store": "view", "index": {"public.users": ["city"]}},
        serve={"port": 0},
    )
    deployed.start_bridge()
    return deployed


@pytest.fixture
def services(deployment: Deployment, tmp_path: Path) -> Iterator[list[ServeProcess]]:
    """Two services over one store; each has a folder for its log."""
    with ExitStack() as stack:
        found = [ServeProcess(deployment.config, tmp_path / f"serve-{number}.log") for number in range(2)]
        for each in found:
            each.start()
            stack.callback(each.kill)
        yield found


def lsn(database: Database) -> LSN:
    return LSN.parse(database.execute("select pg_current_wal_lsn()::text")[0][0])


def test_each_commit_is_read_back_at_once_through_either_service_which_survive_each_other(
    deployment: Deployment, services: list[ServeProcess], database: Database
) -> None:
    deployment.wait_backfilled("public.users")
    with services[0].client() as one, services[1].client() as other:
        clients = [one, other]
        for client in clients:
            eventually(partial(_is_ready, client), 60, services[0].tail)
        commits = 1000
        for number in range(commits):
            database.execute("update users set city = %s where id = 1", (str(number),))
            got = clients[number % 2].get(ROW, params={"min_lsn": str(lsn(database))})
            assert got.status_code == 200, got.text
            assert got.json()["city"] == str(number)
            assert got.headers["cdc-state"] == "exact"
        assert (
            one.get("/v1/tables/public.users/rows", params={"index.city": "Paris"}).json()["rows"][0]["row"]["id"] == 2
        )
        assert "cdc_feed_rows_applied_total" in one.get("/metrics").text + other.get("/metrics").text
        _the_past(database, one)
        filling = next(each for each in services if "waiting: another process" not in each.said())
        left = clients[1 - services.index(filling)]
        filling.kill()
        database.execute("update users set city = 'Rome' where id = 1")
        wanted = str(lsn(database))
        got = eventually(lambda: _found(left, wanted), 60, lambda: "\n".join(each.tail() for each in services))
        assert got.json()["city"] == "Rome"


def test_a_full_disk_ends_no_reads_and_the_view_goes_on_when_there_is_room(
    deployment: Deployment, services: list[ServeProcess], database: Database, tmp_path: Path
) -> None:
    """The service ended when its view had no room."""
    service = services[0]
    services[1].kill()
    deployment.wait_backfilled("public.users")
    with service.client() as client:
        eventually(lambda: client.get(ROW).status_code == 200, 60, service.tail)
        used = (tmp_path / "view" / "tables" / "data.mdb").stat().st_size
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (used, resource.RLIM_INFINITY))
        database.execute("insert into users select n, repeat('x', 1000), 'full' from generate_series(10, 2000) n")
        service.wait_said("the disk cannot take what the store in ")
        for _ in range(20):
            assert client.get(ROW).json()["city"] == "London"
        waited = client.get(ROW, params={"min_lsn": str(lsn(database)), "timeout": 1})
        assert (waited.status_code, waited.json()["type"]) == (412, "not-yet")
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        eventually(lambda: _found(client, str(lsn(database))), 60, service.tail)
        assert client.get("/v1/tables/public.users/count").json() == {"count": 1993}


def test_a_store_that_was_cut_off_is_filled_anew_and_never_served(
    deployment: Deployment, services: list[ServeProcess], database: Database, tmp_path: Path
) -> None:
    """The process ended by SIGBUS, without a line."""
    service = services[0]
    services[1].kill()
    deployment.wait_backfilled("public.users")
    data = tmp_path / "view" / "tables" / "data.mdb"
    with service.client() as client:
        eventually(lambda: client.get(ROW).status_code == 200, 60, service.tail)
        pid = service.wait_children(1)[0].pid
        os.truncate(data, data.stat().st_size // 2)
        seen = set()

        def is_back() -> bool:
            got = client.get(ROW)
            seen.add((got.status_code, got.json().get("type", got.json().get("name"))))
            database.execute("update users set city = city || '.' where id = 2")
            return got.status_code == 200

        assert client.get(ROW).json()["type"] == "store-away"
        eventually(is_back, 60, service.tail)
        assert seen <= {(503, "store-away"), (503, "not-ready"), (200, "Ada")}
        assert service.wait_children(1)[0].pid == pid
    assert "the store is damaged: filling it again from the topics" in service.said()


def _is_ready(client: httpx.Client) -> bool:
    return client.get("/ready").status_code == 200


def _found(client: httpx.Client, wanted: str) -> httpx.Response | None:
    got = client.get(ROW, params={"min_lsn": wanted, "timeout": 5})
    return got if got.status_code == 200 else None


def _the_past(database: Database, client: httpx.Client) -> None:
    before = lsn(database)
    database.execute("delete from users where id = 1")
    database.execute("insert into users values (1, 'Ada', 'back')")
    after = lsn(database)
    assert client.get(ROW, params={"min_lsn": str(after)}).json()["city"] == "back"
    then = client.get(ROW, params={"as_of": str(before)})
    assert (then.status_code, then.json()["city"]) == (200, "999"), then.text
    assert then.headers["cdc-as-of"] == str(before)
    assert then.headers["cdc-reason"].startswith("since ")
    by_key = client.get("/v1/tables/public.users/rows", params={"key": '{"id":1}', "as_of": str(before)})
    assert by_key.content == then.content
    never = client.get("/v1/tables/public.users/rows/99", params={"as_of": str(before)})
    assert (never.status_code, never.json()["type"]) == (404, "no-row")
    database.execute("insert into levels values (1, 'low'), (1e15, 'high')")
    now = str(lsn(database))
    for level, name in (("1", "low"), ("1.0", "low"), ("1e15", "high")):
        path = f"/v1/tables/public.levels/rows/{level}"
        for asked in ({"min_lsn": now}, {"as_of": now}):  # PostgreSQL writes 1 and 1e+15
            got = client.get(path, params=asked)
            assert (got.status_code, got.json().get("name")) == (200, name), got.text
