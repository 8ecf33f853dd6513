"""Columns that may not leave, looked for in each byte that the servers and programs behind the bridge ever wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cdc.lab.stack.embedded import free_port
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment, deployed
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database, OwnStack, fresh_database
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

_CANARIES: Final = (b"canary", b"CANARY", b"Y2FuYX", b"NhbmFye", b"jYW5hcn", b"63616e617279")
"""The word itself, and as it would stand in base64 or in hex."""
_SEEN: Final = b"canopy"
"""What leaves: each place that is searched has it."""
_SALT: Final = "a salt of the test, long enough"
_TABLES: Final = """
    CREATE TABLE person (secret text, id int PRIMARY KEY, email text, phone text, name text, large text, city text);
    ALTER TABLE person ALTER large SET STORAGE EXTERNAL;
    CREATE TABLE guest (email text PRIMARY KEY, city text);
    INSERT INTO guest SELECT 'canary' || n || '@mail', 'canopy' || n FROM generate_series(1, 9) n;
    CREATE TABLE parcel (id int PRIMARY KEY, secret text, content text)"""
_ROWS: Final = """INSERT INTO person SELECT 'canary', n, 'canary' || n || '@mail', 'canary+49' || n + 1000, 'canary',
    repeat('canary' || n, 1000), 'canopy' || n FROM generate_series({}, {}) n"""
_PARCEL: Final = """INSERT INTO parcel
    SELECT 1, 'canary', string_agg(md5(n::text), '') FROM generate_series(1, 40000) n"""
_LONG_CITY: Final = "canopy that is far too long for the replica"
_CHANGES: Final = (
    _ROWS.format(21, 40),
    "UPDATE person SET city = 'canopy there' WHERE id % 3 = 0",
    "UPDATE person SET id = id + 100 WHERE id IN (4, 30)",
    "DELETE FROM person WHERE id IN (7, 31)",
    "ALTER TABLE person REPLICA IDENTITY FULL",
    "UPDATE person SET email = 'canary of ' || id WHERE id % 4 = 0",
    "UPDATE person SET id = id + 200 WHERE id = 8",
    "UPDATE guest SET city = 'canopy here' WHERE email < 'canary4'",
    "UPDATE guest SET email = 'canary of ' || email WHERE email > 'canary6'",
    "DELETE FROM guest WHERE email = 'canary5@mail'",
)
_RULES: Final[dict[str, Any]] = {
    "public.person": {
        "exclude": ["secret"],
        "mask": {"email": "sha256", "phone": "last4", "name": None, "large": "sha256-joinable"},
    },
    "public.parcel": {"exclude": ["secret"]},
    "public.guest": {"mask": {"email": "sha256"}},
}


@dataclass
class Searched:
    """A deployment, and the folders that hold all that it writes, by their names."""

    deployment: Deployment
    folders: dict[str, Path]


@pytest.fixture
def searched(
    own_stack: OwnStack, database: Database, tmp_path: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Searched]:
    """Broker and replica are this test's alone, and so are the folders for logs, the view and temporary files."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    salt = tmp_path_factory.mktemp("salt") / "salt"
    salt.write_text(_SALT, encoding="utf-8")
    broker, server = own_stack.kafka(), own_stack.postgres()
    sections: dict[str, dict[str, Any]] = {
        "source": {"columns": _RULES, "salt_file": str(salt), "streaming": True},
        # Compressed, the word could not be found
        "kafka": {"options": {"compression.type": "none"}},
        "topics": {"partitions": 2, "history": ["public.*"], "max_message_bytes": 1_048_588},
        "http": {"bridge_port": free_port(), "sink_port": free_port()},
        "view": {"store": str(tmp_path / "view"), "index": {"public.person": ["city", "email"]}},
        "serve": {"port": 0},
    }
    with ExitStack() as stack:
        replica = stack.enter_context(fresh_database(server))
        deployment = stack.enter_context(
            deployed(database, broker.bootstrap, replica, tmp_path / "logs", sections, kind=CdcProcess)
        )
        yield Searched(deployment, {"broker": broker.directory, "replica": server.directory, "programs": tmp_path})


def answers(deployment: Deployment, serve: ServeProcess) -> bytes:
    """What pages and metrics of bridge, sink and view say."""
    ports = [deployment.settings["http"][each] for each in ("bridge_port", "sink_port")]
    pages = ["/metrics", "/dashboard/state", "/dashboard/key?table=public.person&key=12"]
    found = [httpx.get(f"http://127.0.0.1:{port}{page}", timeout=60) for port in ports for page in pages]
    with serve.client() as client:
        eventually(lambda: client.get("/ready").is_success, 60, serve.tail)
        asked = ["/v1/tables/public.person/rows", "/v1/tables/public.person/rows/12", "/v1/tables", "/metrics"]
        asked.append("/v1/tables/public.guest/rows")
        found += [client.get(each) for each in asked]
    assert [each for each in found if not each.is_success] == []
    return b"\n".join(each.content for each in found)


def holding(place: Path, wanted: tuple[bytes, ...]) -> list[str]:
    """The files below a folder that have one of these words."""
    files = [each for each in sorted(place.rglob("*")) if each.is_file() and not each.is_symlink()]
    return [str(each.relative_to(place)) for each in files if any(word in each.read_bytes() for word in wanted)]


def test_no_byte_of_them_is_anywhere(searched: Searched, database: Database) -> None:
    """After a life with kills, a row that the replica refuses, and one that its topic cannot hold."""
    deployment = searched.deployment
    database.execute(_TABLES)
    database.execute(_ROWS.format(1, 20))
    deployment.start()
    deployment.wait_backfilled()
    for number, change in enumerate(_CHANGES):
        database.execute(change)
        if number in (1, 4):
            deployment.bridge.restart()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    deployment.replica.execute("ALTER TABLE person ADD CONSTRAINT short CHECK (length(city) < 20)")
    database.execute("UPDATE person SET city = %s WHERE id = 12", (_LONG_CITY,))
    deployment.wait_published()
    deployment.sink.wait_said("violates check constraint")
    serve = ServeProcess(deployment.config, deployment.directory / "serve.log")
    serve.start()
    try:
        said = answers(deployment, serve)
    finally:
        serve.kill()
    said += deployment.command("status", code=3).encode()  # a table is stopped
    for command in (("get", "public.person", "12"), ("history", "public.person", "12"), ("check",)):
        said += deployment.command(*command).encode()
    database.execute(_PARCEL)
    deployment.bridge.refusal(3)
    deployment.sink.stop()
    deployment.replica.execute("CHECKPOINT")

    assert _SEEN in said
    assert [line for line in said.splitlines() if any(word in line for word in _CANARIES)] == []
    for name, folder in searched.folders.items():
        assert holding(folder, (_SEEN,)), f"nothing at all is found in the files of {name}"
        assert holding(folder, (*_CANARIES, _SALT.encode())) == [], name
