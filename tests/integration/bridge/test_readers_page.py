"""The examples of docs/readers.md read the table: what they hold is the source, row by row."""

from __future__ import annotations

import shutil
import subprocess
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.architecture.pages import page
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database

PAGE = page("docs/readers.md")
CONFLUENT, _AVRO, _JSON_SCHEMA, _PROTOBUF, AIOKAFKA, PANDAS, DUCKDB, _SPARK = PAGE.fences("python")

ROWS = [
    (1, Decimal("12.50"), datetime.fromisoformat("2026-03-29 12:00:00.123456+00:00"), "plain"),
    (3, Decimal("9999999999.99"), datetime.fromisoformat("2026-03-29 12:00:00+00:00"), None),
    (4, None, None, "naïve ü"),
]
"""What is left in the end, as pandas and DuckDB hold it."""


@pytest.fixture
def live(database: Database, deploy: Deploy) -> Deployment:
    """A topic with updates, a tombstone, records of a backfill and of Kafka transactions that were aborted."""
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(12, 2), placed_at timestamptz, note text);"
        "INSERT INTO orders VALUES (1, 1, now(), 'old'), (2, 2, now(), 'goes')"
    )
    live = deploy()
    live.start_bridge()
    live.wait_backfilled("public.orders")
    with database.connect() as source:
        source.execute("INSERT INTO orders VALUES (3, 3, now(), 'also old'), (4, NULL, NULL, 'naïve ü')")
        source.execute("UPDATE orders SET amount = 12.50, placed_at = %s, note = %s WHERE id = 1", ROWS[0][2:])
        source.execute("UPDATE orders SET amount = %s, placed_at = %s, note = %s WHERE id = 3", ROWS[1][1:])
        source.execute("DELETE FROM orders WHERE id = 2")
    live.assert_published("public.orders")
    return live


def run(block: str, live: Deployment, space: dict[str, Any]) -> dict[str, Any]:
    named = block.replace("localhost:9092", live.bootstrap).replace("shop.public.orders", live.topic("public.orders"))
    exec(compile(named, "docs/readers.md", "exec"), space)
    return space


def as_text(live: Deployment) -> list[Any]:
    """The source's rows as the topic carries them."""
    rows = live.source.execute("SELECT id, amount::text, placed_at::text, note FROM orders ORDER BY id")
    return [dict(zip(("id", "amount", "placed_at", "note"), row, strict=True)) for row in rows]


def test_each_client_reads_the_table(live: Deployment) -> None:
    live.source.execute(f"ALTER DATABASE {live.source.name} SET timezone = 'UTC'")
    for block in (CONFLUENT, AIOKAFKA):
        orders = run(block, live, {})["orders"]
        assert sorted(orders.values(), key=lambda row: row["id"]) == as_text(live)
        assert {orjson.loads(key)["id"] for key in orders} == {1, 3, 4}


def test_pandas_and_duckdb_hold_its_types(live: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space = run(CONFLUENT, live, {})
    frame = run(PANDAS, live, space)["frame"].sort_values("id").astype(object)
    assert [tuple(row) for row in frame.where(frame.notna(), None).itertuples(index=False)] == ROWS
    database = run(DUCKDB, live, space)["database"]
    database.sql("SET timezone = 'UTC'")
    held = database.sql("SELECT id, amount, placed_at::text, note FROM orders ORDER BY id").fetchall()
    assert [(number, amount, at and datetime.fromisoformat(at), note) for number, amount, at, note in held] == ROWS


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not here")
def test_kcat_prints_the_newest_record_of_each_key_last(live: Deployment) -> None:
    (command,) = [each for each in PAGE.fences("sh") if each.startswith("kcat")]
    named = command.replace("localhost:9092", live.bootstrap).replace("shop.public.orders", live.topic("public.orders"))
    said = subprocess.run(["bash", "-c", named], capture_output=True, text=True, check=True, timeout=60).stdout
    newest = dict(line.split(" = ", 1) for line in said.splitlines())
    rows = sorted((orjson.loads(value) for value in newest.values() if value), key=lambda row: row["id"])
    assert rows == as_text(live)
