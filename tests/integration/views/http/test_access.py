"""Who may read what: tokens, TLS, and pages of other origins in a browser."""

from __future__ import annotations

import hashlib
import logging
import shutil
import ssl
from pathlib import Path

import httpx
import pytest
import yaml
from structlog.testing import capture_logs

from cdc.views.http import run
from tests.integration.views.http.conftest import Serve
from tests.support.certificates import Authority
from tests.support.planted_view import PlantedView
from tests.support.waiting import eventually

DASHBOARD, NOTHING, SCRAPER = "dashboard-0123456789", "nothing-0123456789ab", "scraper-0123456789ab"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    content = {
        "dashboard": {"sha256": hashlib.sha256(DASHBOARD.encode()).hexdigest(), "tables": ["public.us*"]},
        "nothing": {"token": NOTHING},
        "prometheus": {"token": SCRAPER, "metrics": True},
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def client(view: PlantedView, serve: Serve, tokens_file: Path) -> httpx.Client:
    return serve(view.store, tokens_file=str(tokens_file), aliases={"/users": "public.users", "/stock": "public.stock"})


PATHS = [
    "/v1/tables/public.users/rows/1",
    "/v1/tables/public.users/rows",
    "/v1/tables/public.users/count",
    "/v1/tables/public.users/watch",
    "/v1/tables/public.users",
    "/users/1",
    "/users",
    "/users/count",
]


@pytest.mark.parametrize("path", [*PATHS, "/v1/tables", "/metrics", "/openapi.json"])
def test_without_a_token_nothing_is_told(client: httpx.Client, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Basic abc"},
        {"Authorization": "Bearer"},
        bearer("guess-guess-guess-guess"),
    ):
        got = client.get(path, headers=headers)
        assert (got.status_code, got.json()["type"], got.headers["www-authenticate"]) == (401, "no-token", "Bearer")
        assert "public" not in got.text


@pytest.mark.parametrize("path", [path for path in PATHS if not path.endswith(("watch", "users/count"))])
def test_a_token_reads_its_tables(client: httpx.Client, path: str) -> None:
    assert client.get(path, headers=bearer(DASHBOARD)).status_code == 200


FULL = [path for path in PATHS if path.startswith("/v1")]
SHORT = [path for path in PATHS if path not in FULL]


@pytest.mark.parametrize("path", [path.replace("users", "stock") for path in FULL] + ["/v1/tables/public.none/rows/1"])
def test_a_token_reads_no_other_table_and_learns_of_none(client: httpx.Client, path: str) -> None:
    got = client.get(path, headers=bearer(DASHBOARD))
    assert (got.status_code, got.json()["type"]) == (403, "not-allowed")
    assert "events" not in got.text


@pytest.mark.parametrize("path", [path.replace("users", "stock") for path in SHORT])
def test_a_short_path_to_another_table_is_like_none(client: httpx.Client, path: str) -> None:
    none = client.get("/nothing/1", headers=bearer(DASHBOARD))
    assert (none.status_code, none.json()["type"]) == (404, "no-page")
    for method in ("GET", "DELETE"):
        got = client.request(method, path, headers=bearer(DASHBOARD))
        assert (got.status_code, got.content) == (404, none.content)


@pytest.mark.parametrize("path", ["/users", "/nothing", "/v1/tables"])
def test_without_a_token_no_method_tells_which_paths_there_are(client: httpx.Client, path: str) -> None:
    for method in ("GET", "DELETE", "OPTIONS"):
        assert client.request(method, path).status_code == 401


def test_with_tokens_any_name_is_answered(client: httpx.Client) -> None:
    got = client.get("/v1/tables", headers={**bearer(DASHBOARD), "Host": "shop.example"})
    assert got.status_code == 200


def test_a_token_lists_its_tables_only(client: httpx.Client) -> None:
    listed = client.get("/v1/tables", headers=bearer(DASHBOARD)).json()["tables"]
    assert [each["name"] for each in listed] == ["public.users"]
    assert client.get("/v1/tables", headers=bearer(NOTHING)).json()["tables"] == []
    paths = client.get("/openapi.json", headers=bearer(DASHBOARD)).json()["paths"]
    assert "/users/{key}" in paths
    assert "/stock/{key}" not in paths
    unknown = client.get("/v1/tables/public.usages", headers=bearer(DASHBOARD)).json()
    assert (unknown["type"], unknown["tables"]) == ("unknown-table", ["public.users"])


@pytest.mark.parametrize("path", PATHS)
def test_a_token_without_tables_reads_nothing(client: httpx.Client, path: str) -> None:
    assert client.get(path, headers=bearer(NOTHING)).status_code == (403 if path in FULL else 404)


def test_metrics_are_for_the_token_that_says_so(client: httpx.Client) -> None:
    assert client.get("/metrics", headers=bearer(DASHBOARD)).status_code == 403
    assert "cdc_serve_lsn" in client.get("/metrics", headers=bearer(SCRAPER)).text


def test_probes_need_no_token_and_name_no_table(client: httpx.Client) -> None:
    assert client.get("/live").json() == {"live": True}
    assert client.get("/ready").json() == {"ready": True, "state": "exact", "tables": 3}


def test_a_token_that_is_taken_out_is_refused_soon(
    view: PlantedView, serve: Serve, tokens_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REFRESH_S", 0)
    client = serve(view.store, tokens_file=str(tokens_file))
    content = yaml.safe_load(tokens_file.read_text())
    with capture_logs() as logs:
        tokens_file.write_text("dashboard: [")
        eventually(
            lambda: [each for each in logs if each["event"] == "cannot read the new tokens; the old ones stay valid"]
        )
        assert client.get("/v1/tables", headers=bearer(NOTHING)).status_code == 200
        del content["nothing"]
        tokens_file.write_text(yaml.safe_dump(content))
        eventually(lambda: client.get("/v1/tables", headers=bearer(NOTHING)).status_code == 401)
    assert client.get("/v1/tables", headers=bearer(DASHBOARD)).status_code == 200


def test_a_watch_ends_with_its_token(
    view: PlantedView, serve: Serve, tokens_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REFRESH_S", 0)
    client = serve(view.store, tokens_file=str(tokens_file))
    with client.stream("GET", "/v1/tables/public.users/watch", headers=bearer(DASHBOARD)) as got:
        lines = got.iter_lines()
        assert "event: snapshot" in lines
        tokens_file.write_text(yaml.safe_dump({"nothing": {"token": NOTHING}}))
        eventually(lambda: client.get("/v1/tables", headers=bearer(DASHBOARD)).status_code == 401)
        view.put("public.users", {"id": 4, "name": "Di", "city": "Secret"})
        rest = list(lines)
    assert "event: end" in rest
    assert not [line for line in rest if "Secret" in line]
    assert [line for line in rest if "This token is not in serve.tokens_file." in line]


def test_no_token_is_in_the_logs(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        for path in PATHS[:1]:
            client.get(path, headers=bearer(DASHBOARD))
            client.get(path, headers=bearer("guess-guess-guess-guess"))
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    told = str(logs) + str([record.getMessage() for record in ours])
    assert DASHBOARD not in told
    assert "guess" not in told


def test_pages_of_other_origins_are_refused_by_default(view: PlantedView, serve: Serve) -> None:
    got = serve(view.store).get("/v1/tables", headers={"Origin": "https://shop.example"})
    assert not any(name.startswith("access-control") for name in got.headers)


def test_pages_of_an_origin_that_is_named_may_ask(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store, cors_origins=["https://shop.example"])
    row = "/v1/tables/public.users/rows/1"
    got = client.get(row, headers={"Origin": "https://shop.example"})
    assert got.headers["access-control-allow-origin"] == "https://shop.example"
    assert "Cdc-Lsn" in got.headers["access-control-expose-headers"]
    asks = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    asked = client.options(row, headers={"Origin": "https://shop.example", **asks})
    assert asked.status_code == 200
    other = client.get(row, headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers


def test_tls(view: PlantedView, serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("service")
    client = serve(view.store, tls_cert=str(signed.certificate), tls_key=str(signed.key))
    assert client.base_url.scheme == "https"
    trusted = ssl.create_default_context(cafile=str(authority.root))
    got = httpx.get(f"{client.base_url}/v1/tables/public.users/rows/1", verify=trusted)
    assert got.json()["name"] == "Ada"


def test_a_certificate_that_is_renewed(
    view: PlantedView, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REFRESH_S", 0)
    old, new = (Authority(tmp_path, name).sign(name) for name in ("old", "new"))
    files = tmp_path / "service.pem", tmp_path / "service.key"
    for source, target in zip((old.certificate, old.key), files, strict=True):
        shutil.copy(source, target)
    client = serve(view.store, tls_cert=str(files[0]), tls_key=str(files[1]))
    address = (client.base_url.host, client.base_url.port or 0)
    assert ssl.get_server_certificate(address) == old.certificate.read_text()
    with capture_logs() as logs:
        new.key.replace(files[1])  # alone it is not the certificate's
        eventually(
            lambda: [
                each
                for each in logs
                if each["event"] == "cannot load the new certificate, so the service keeps the old one"
            ]
        )
        assert ssl.get_server_certificate(address) == old.certificate.read_text()
        Path(shutil.copy(new.certificate, tmp_path / "copy")).replace(files[0])
        eventually(lambda: ssl.get_server_certificate(address) == new.certificate.read_text())


def test_a_token_may_have_so_many_watches(view: PlantedView, serve: Serve, tokens_file: Path) -> None:
    content = yaml.safe_load(tokens_file.read_text())
    content["dashboard"]["watches"] = 1
    content["other"] = {"token": "other-0123456789abcdef", "tables": ["*"]}
    tokens_file.write_text(yaml.safe_dump(content))
    client = serve(view.store, tokens_file=str(tokens_file))
    path = "/v1/tables/public.users/watch"
    with client.stream("GET", path, headers=bearer(DASHBOARD)) as first:
        assert first.status_code == 200
        got = client.get(path, headers=bearer(DASHBOARD))
        assert (got.status_code, got.json()["type"], got.headers["retry-after"]) == (429, "too-many-watches", "5")
        assert got.json()["detail"] == "The token dashboard has 1 watches open here, and may have 1. Close one."
        with client.stream("GET", path, headers=bearer("other-0123456789abcdef")) as other:
            assert other.status_code == 200

    def may_watch() -> bool:
        with client.stream("GET", path, headers=bearer(DASHBOARD)) as got:
            return got.status_code == 200

    eventually(may_watch)
