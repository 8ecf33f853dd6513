"""A key or an indexed value in another spelling than PostgreSQL's.

By every way to ask for it, the answer is the row that PostgreSQL would find; and what is no value of the type is
refused with an example, and never said to be not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from cdc.base.config import load
from cdc.ops.dashboard.key_facts import key_facts
from tests.support.deployment import Deploy, Deployment
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.waiting import eventually

TABLES: Mapping[str, tuple[str, str, tuple[str, ...], str]] = {
    "ids": (
        "uuid",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}"),
        "a0eebc99",
    ),
    "moments": (
        "timestamptz",
        "2026-01-01 00:00:00+00",
        ("2026-01-01T00:00:00Z", "2026-01-01T02:30:00.000+02:30", "2026-01-01"),
        "2026-02-30T00:00:00Z",
    ),
    "days": ("date", "0044-03-15 BC", ("0044-3-15 bc",), "0000-01-01"),
    "prices": ("numeric(10,2)", "1.00", ("1", "1.0", "+01.000", "1e0"), "1.005"),
    "amounts": ("numeric", "1.0", ("1", "1.00", "10e-1"), "1_0"),
    "codes": ("char(5)", "ab   ", ("ab", "ab "), "abcdef"),
    "levels": ("float8", "15", ("15.0", "1.5e1", "1500e-2"), "1_5"),
    "zeros": ("float8", "-0", ("0", "0.0", "-0.0"), "zero"),
    "flags": ("bool", "t", ("true", "yes", "1"), "maybe"),
    "blobs": ("bytea", "\\x00ff", ("\\x00FF", "\\000\\377"), "\\x0"),
    "hosts": ("inet", "fe80::1", ("FE80::1", "fe80:0::0001", "fe80::1/128"), "fe80::g"),
    "cards": ("macaddr", "08:00:2b:01:02:03", ("08-00-2B-01-02-03", "0800.2b01.0203"), "08:00"),
    "places": ("pg_lsn", "0/1A2B", ("0/1a2b", "00/00001A2B"), "1A2B"),
}
"""Table → type of its key, the key's text, other spellings of it, and what is no value of the type."""


@pytest.mark.parametrize("store", ["view", pytest.param("redis", marks=pytest.mark.long)])
def test_a_key_is_found_however_it_is_spelled(
    store: str, database: Database, deploy: Deploy, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for table, (sql_type, text, _, _) in TABLES.items():
        database.execute(f"create table {table} (k {sql_type} primary key, n numeric(10,2), m numeric)")
        database.execute(f"insert into {table} values (%s, 0.50, 7.10)", (text,))
    database.execute("create table mixed (n numeric, region text, primary key (n, region))")
    database.execute("insert into mixed values (1.5, 'a'), (1.50, 'eu'), (1.500, 'us'), (1.501, 'eu'), (15, 'eu')")
    database.execute("create table spans (k interval primary key); insert into spans values ('1 mon')")
    names = [f"public.{table}" for table in (*TABLES, "mixed", "spans")]
    place = "view" if store == "view" else f"{request.getfixturevalue('redis').url}?prefix=spelled{database.name}"
    deployment = deploy(
        source={"tables": names},
        topics={"partitions": 3, "history": names},
        view={"store": place, "index": {f"public.{table}": ["n", "m"] for table in TABLES}},
        serve={"port": 0, "aliases": {"/amounts": "public.amounts"}},
    )
    deployment.start_bridge()
    deployment.wait_backfilled(*names)
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        with service.client() as client:
            eventually(lambda: client.get("/ready").status_code == 200, 60, service.tail)
            for table in TABLES:
                _ask_by_key(client, table)
                _ask_by_index(client, table)
            _ask_for_parts(client)
            _ask_for_spans(client)
            _ask_for_null(client, database)
            _ask_for_past(client, database)
            assert client.get("/amounts/1").json() == client.get("/amounts/1.0").json()
    finally:
        service.stop()
    if store == "view":
        _ask_commands(deployment)


def _ask_by_key(client: httpx.Client, table: str) -> None:
    sql_type, text, others, wrong = TABLES[table]
    page = f"/v1/tables/public.{table}/rows"
    [row] = client.get(page).json()["rows"]
    for spelled in (text, *others):
        got = client.get(f"{page}/{quote(spelled, safe='')}")
        assert (got.status_code, got.json()) == (200, row["row"]), (sql_type, spelled, got.text)
        value = {"float8": spelled, "bool": "true"}.get(sql_type, json.dumps(spelled))
        got = client.get(page, params={"key": f'{{"k":{value}}}'})
        assert (got.status_code, got.json()) == (200, row["row"]), (sql_type, spelled, got.text)
        got = client.post(f"{page}:batchGet", content=f'{{"keys":[{{"k":{value}}}]}}')
        assert got.json()["rows"] == [row], (sql_type, spelled, got.text)
        found = client.get(page, params={"start": quote(spelled, safe="")}).json()["rows"]
        assert found == [row], (sql_type, spelled, found)
        assert client.get(page, params={"stop": quote(spelled, safe="")}).json()["rows"] == [], (sql_type, spelled)
    refused = client.get(f"{page}/{quote(wrong, safe='')}")
    assert (refused.status_code, refused.json()["type"]) == (400, "malformed-key"), (sql_type, wrong, refused.text)
    assert f"public.{table}.k is {sql_type}, not" in refused.json()["detail"]
    assert "a valid value is" in refused.json()["detail"]


def _ask_by_index(client: httpx.Client, table: str) -> None:
    page = f"/v1/tables/public.{table}/rows"
    for name, spellings in {"n": ("0.5", "0.50", "5e-1", ".5"), "m": ("7.1", "7.10", "7.100")}.items():
        for spelled in spellings:
            found = client.get(page, params={f"index.{name}": spelled}).json()["rows"]
            assert len(found) == 1, (table, name, spelled)
        refused = client.get(page, params={f"index.{name}": "1_0"})
        assert (refused.status_code, refused.json()["type"]) == (400, "malformed-key"), refused.text


def _ask_for_parts(client: httpx.Client) -> None:
    """Of a key of which one column has several spellings, each of them in the table."""
    page = "/v1/tables/public.mixed/rows"
    for spelled in ("1.5", "1.50", "1.5000", "15e-1"):
        for region, printed in {"a": "1.5", "eu": "1.50", "us": "1.500"}.items():
            got = client.get(f"{page}/{spelled}/{region}")
            assert (got.status_code, got.json()) == (200, {"n": printed, "region": region}), (spelled, region)
        assert client.get(f"{page}/{spelled}/none").status_code == 404
        found = client.get(page, params={"prefix": f"{spelled}/"}).json()["rows"]
        assert [each["row"]["region"] for each in found] == ["a", "eu", "us"], spelled
        refused = client.get(page, params={"prefix": f"{spelled}/e"})
        assert (refused.status_code, refused.json()["type"]) == (400, "bad-parameter"), refused.text
        found = client.get(page, params={"start": spelled, "stop": "1.501"}).json()["rows"]
        assert len(found) == 3, spelled


def _ask_for_spans(client: httpx.Client) -> None:
    """PostgreSQL finds this row by 30 days, too: we cannot tell, and say so."""
    page = "/v1/tables/public.spans/rows"
    assert client.get(f"{page}/1 mon").status_code == 200
    missing = client.get(f"{page}/30 days")
    assert (missing.status_code, missing.json()["type"]) == (404, "no-row")
    assert "(interval) are compared as text" in missing.json()["detail"]
    assert 'A key of this table is {"k":"1 mon"}.' in missing.json()["detail"]
    assert client.get(f"{page}/1 month").status_code == 400


def _ask_for_null(client: httpx.Client, database: Database) -> None:
    page = "/v1/tables/public.prices/rows"
    assert client.get(page, params={"null.n": ""}).json()["rows"] == []
    database.execute("insert into prices values (2, null, 1)")
    lsn = database.execute("select pg_current_wal_lsn()::text")[0][0]
    found = client.get(page, params={"null.n": "", "min_lsn": lsn, "timeout": 10}).json()["rows"]
    assert [each["key"] for each in found] == [{"k": "2.00"}]
    assert client.get(page, params={"null.n": "0.5"}).json()["type"] == "bad-parameter"
    assert client.get(page, params={"null.n": "", "index.n": "1"}).json()["type"] == "bad-parameter"


def _ask_for_past(client: httpx.Client, database: Database) -> None:
    page = "/v1/tables/public.amounts/rows"
    before = database.execute("select pg_current_wal_lsn()::text")[0][0]
    database.execute("update amounts set m = 8 where k = 1")
    lsn = database.execute("select pg_current_wal_lsn()::text")[0][0]
    for spelled in ("1.0", "1", "1.00"):
        now = client.get(f"{page}/{spelled}", params={"min_lsn": lsn, "timeout": 10})
        then = client.get(f"{page}/{spelled}", params={"as_of": before})
        assert [each.json().get("m") for each in (now, then)] == ["8", "7.10"], (spelled, now.text, then.text)


def _ask_commands(deployment: Deployment) -> None:
    for table, spelled in [("moments", "2026-01-01T00:00:00Z"), ("amounts", "1"), ("codes", "ab"), ("zeros", "0")]:
        text = TABLES[table][1]
        name = f"public.{table}"
        got = json.loads(deployment.command("get", name, f"k={spelled}", "--json"))
        assert str(got["row"]["k"]) in (text, "0", "-0.0"), (table, got)
        assert got["row"]["n"] == "0.50"
        told = deployment.command("history", name, "--key", spelled)
        assert "backfill" in told, told
        facts = key_facts(load(deployment.config, {}), name, spelled)
        assert facts["topic"]["row"] is not None, (table, facts)
        assert facts["source"]["row"] is not None, (table, facts)
    told = deployment.command("get", "public.prices", "1_0", code=2)
    assert "k is numeric(10,2), not '1_0': write a number; a right value is 1.00" in told
    told = deployment.command("get", "public.spans", "30 days", code=1)
    assert "Values of k (interval) are compared as text" in told
