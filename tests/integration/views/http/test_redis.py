"""Services over a view in Redis: they answer, they notice when it is away, and they come back with it."""

from __future__ import annotations

import uuid
from pathlib import Path

import yaml

from cdc.base.lsn import LSN
from cdc.lab.stack import Redis
from cdc.views.store.open import open_store
from tests.integration.views.http.conftest import ADA, planted
from tests.support.serve_process import ServeProcess
from tests.support.servers import OwnStack
from tests.support.waiting import eventually

ROW = "/v1/tables/public.users/rows/1"


def service(tmp_path: Path, address: str) -> ServeProcess:
    content = {"name": "shop", "kafka": {"bootstrap": "127.0.0.1:1"}, "view": {"store": address}, "serve": {"port": 0}}
    path = tmp_path / "redis.yaml"
    path.write_text(yaml.safe_dump(content))
    return ServeProcess(path, tmp_path / "serve.log", "--no-feed", "--workers", "2")


def test_answers_from_redis_show_each_commit(tmp_path: Path, redis: Redis) -> None:
    prefix = uuid.uuid4().hex
    view = planted(open_store(f"{redis.url}?prefix={prefix}:tables"))
    started = service(tmp_path, f"{redis.url}?prefix={prefix}")
    with started, started.client() as client:
        assert client.get(ROW).json() == ADA
        for number in range(50):
            view.put("public.users", {**ADA, "city": str(number)})
            got = client.get(ROW, params={"min_lsn": str(LSN(view.lsn))})
            assert (got.status_code, got.json()["city"]) == (200, str(number))
        assert len(client.get("/v1/tables/public.users/rows").json()["rows"]) == 3
    view.store.close()


def test_a_redis_that_is_away_is_told_and_comes_back(tmp_path: Path, own_stack: OwnStack) -> None:
    server = own_stack.redis(persistent=True)
    view = planted(open_store(f"{server.url}?prefix=shop:tables"))
    view.store.close()
    server.kill()
    started = service(tmp_path, f"{server.url}?prefix=shop")
    with started, started.client() as client:
        got = client.get(ROW)
        assert (got.status_code, got.json()["type"]) == (503, "store-away"), got.text
        assert str(server.url.rpartition(":")[2].strip("/")) in got.json()["detail"]
        server.restart()
        eventually(lambda: client.get(ROW).status_code == 200, message=lambda: client.get(ROW).text)
        server.kill()
        got = client.get(ROW)
        assert (got.status_code, got.json()["type"]) == (503, "store-away")
        assert client.get("/live").status_code == 200
        assert client.get("/ready").status_code == 503
        server.restart()
        eventually(lambda: client.get(ROW).status_code == 200, message=lambda: client.get(ROW).text)
    assert "Traceback" not in started.said()
