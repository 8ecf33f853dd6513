"""``cdc health`` and ``cdc mirror`` as a user types them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.position import LakePosition
from tests.support.commands import cdc
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.waiting import eventually

TIMEOUT_S = 300


def test_health_and_a_lake_from_the_command_line(database: Database, deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(topics={"partitions": 2})
    database.execute("CREATE TABLE item (id int PRIMARY KEY, price numeric)")
    deployment.start_bridge()
    deployment.wait_backfilled()  # or rows that are inserted meanwhile are published twice, and superseded
    database.execute("INSERT INTO item SELECT n, n * 1.10 FROM generate_series(1, 10) n")
    database.execute("DELETE FROM item WHERE id > 8")
    deployment.wait_published()

    health = cdc(
        "health", "-c", deployment.config, "--json", tmp_path / "health.json", "--html", tmp_path / "health.html",
        own_jvm=True,
    )  # fmt: skip
    assert health.returncode == 0, health.stdout + health.stderr
    assert "12 records" in health.stdout
    assert "1 topic at" in health.stdout
    assert json.loads((tmp_path / "health.json").read_text())["topics"][0]["table"] == "public.item"
    assert (tmp_path / "health.html").read_text().startswith("<!doctype html>")
    missing = cdc("health", "-c", deployment.config, "--topic", "no.such.topic")
    assert missing.returncode == 2
    assert "there is no topic no.such.topic" in missing.stderr

    lake = tmp_path / "lake"
    mirror = cdc("mirror", "-c", deployment.config, "--to", f"parquet:{lake}", "--once")
    assert mirror.returncode == 0, mirror.stdout + mirror.stderr
    assert re.search(r"mirrored [\d,]+ records in [\d.]+ s of work, [\d,]+ records/s", mirror.stderr), mirror.stderr
    folder = lake / deployment.topic("public.item")
    manifest = json.loads((folder / "current.json").read_text())
    rows = [
        (row["id"], row["price"])
        for file in manifest["state"]["files"]
        for row in pyarrow.parquet.read_table(folder / file).to_pylist()
    ]
    assert sorted(rows) == [(n, f"{n * 110 // 100}.{n * 110 % 100:02}") for n in range(1, 9)]
    refused = cdc("mirror", "-c", deployment.config)
    assert refused.returncode == 2
    assert "Missing option '--to'" in refused.stderr
    deployment.stop()


@pytest.mark.long
def test_a_mirror_that_follows_ends_with_sigterm(database: Database, deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy()
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    deployment.start_bridge()
    database.execute("INSERT INTO item VALUES (1)")
    deployment.wait_published()
    lake = tmp_path / "lake"
    with (tmp_path / "mirror.log").open("w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cdc",
                "mirror",
                "-c",
                deployment.config,
                "--to",
                f"parquet:{lake}",
                "--interval",
                "0",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        said, topic = (tmp_path / "mirror.log").read_text, deployment.topic("public.item")

        def copied() -> LakePosition:
            return manifests.read(lake / topic, topic).position

        eventually(lambda: sum(copied().offsets.values()) or process.poll() is not None, TIMEOUT_S, said)
        before = copied().offsets
        database.execute("INSERT INTO item VALUES (2)")
        eventually(lambda: copied().offsets != before or process.poll() is not None, TIMEOUT_S, said)
        eventually(lambda: copied().current_ends or process.poll() is not None, TIMEOUT_S, said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, said()
    finally:
        process.kill()
    deployment.stop()


@pytest.mark.long
@pytest.mark.parametrize("once", [False, True], ids=["follows", "once"])
def test_a_mirror_that_is_stopped_while_spark_starts(
    once: bool, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """The copies are not touched; only who asked for whole ones is told that there are none."""
    deployment = deploy()
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    deployment.start_bridge()
    deployment.wait_published()
    lake, log = tmp_path / "lake", tmp_path / "mirror.log"
    options = ["--to", f"parquet:{lake}", "--rebuild", *(["--once"] if once else [])]
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cdc", "mirror", "-c", str(deployment.config), *options], stdout=out, stderr=out
        )
    try:
        eventually(lambda: log.stat().st_size, TIMEOUT_S)  # the JVM's first line: the session is opening
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == (2 if once else 0), log.read_text()
    finally:
        process.kill()
    assert ("stopped before everything was copied" in log.read_text()) == once
    assert list(lake.rglob("current.json")) == []
    deployment.stop()
