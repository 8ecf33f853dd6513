"""Keys that a reader's numbers cannot tell apart: each has its row, as in the source."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.deployment import Deploy
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.waiting import eventually

DOCUMENTS = [
    "0.1",
    "0.10000000000000000001",
    "18446744073709551616",
    "18446744073709551617",
    "9223372036854775807",
    f"1{'0' * 400}",
    f"1{'0' * 399}1",
    '{"a": 0.1, "b": [1.5]}',
    '{"a": 0.10000000000000000001, "b": [1.5]}',
    '"0.1"',
    "null",
]
DOCS, LEVELS = "/v1/tables/public.docs", "/v1/tables/public.levels"


@pytest.mark.parametrize("store", ["view", "redis"])
def test_each_key_has_its_row(
    store: str, database: Database, deploy: Deploy, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database.execute("create table docs (doc jsonb primary key); create table levels (level float8 primary key)")
    for document in DOCUMENTS:
        database.execute("insert into docs values (%s)", (document,))
    database.execute("insert into levels values (0), (1), (1e15)")
    place = "view" if store == "view" else f"{request.getfixturevalue('redis').url}?prefix=exact{database.name}"
    deployment = deploy(source={"tables": ["public.docs", "public.levels"]}, view={"store": place}, serve={"port": 0})
    deployment.start_bridge()
    deployment.wait_backfilled("public.docs", "public.levels")
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        with service.client() as client:
            eventually(lambda: client.get("/ready").status_code == 200, 60, service.tail)
            assert client.get(f"{DOCS}/count").json() == {"count": len(DOCUMENTS)}
            for document in DOCUMENTS:
                got = client.get(f"{DOCS}/rows/{quote(document, safe='')}")
                assert got.status_code == 200, (document, got.text)
                assert f'"doc": {document}' in got.text or f'"doc":{document}' in got.text, (document, got.text)
                by_key = client.get(f"{DOCS}/rows", params={"key": f'{{"doc":{document}}}'})
                assert by_key.content == got.content
            keys = ",".join(f'{{"doc":{each}}}' for each in DOCUMENTS)
            many = client.post(f"{DOCS}/rows:batchGet", content=f'{{"keys":[{keys}]}}')
            assert many.status_code == 200, many.text
            assert many.text.count('"offset"') == len(DOCUMENTS), "none of them is null"
            never = client.get(f"{DOCS}/rows/0.100000000000000000010")
            assert (never.status_code, never.json()["type"]) == (404, "no-row")

            now = "0"
            for after in ("-0", "0"):
                with database.connect(autocommit=False) as connection:  # much between, so that it comes in many batches
                    connection.execute(f"update levels set level = '{after}' where level = 0".encode())
                    connection.execute(
                        "insert into docs select to_jsonb(%s || i) from generate_series(1, 20000) i", (after + now,)
                    )
                    connection.commit()
                lsn = database.execute("select pg_current_wal_lsn()::text")[0][0]
                got = client.get(f"{LEVELS}/rows/{after}", params={"min_lsn": lsn, "timeout": 10})
                assert (got.status_code, got.text.strip()) == (200, f'{{"level":{after}}}'), got.text
                assert client.get(f"{LEVELS}/rows/{now}").content == got.content, "PostgreSQL calls them equal"
                assert client.get(f"{LEVELS}/count").json() == {"count": 3}
                now = after
            for level in ("1", "1.0", "1e15", "1000000000000000"):
                assert client.get(f"{LEVELS}/rows/{level}").status_code == 200, level
    finally:
        service.stop()
