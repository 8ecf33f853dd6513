"""A table that is taken out of capture: nobody feeds its topic any more, and nothing calls it exact."""

from __future__ import annotations

import signal

import pytest
from typer.testing import CliRunner

from cdc.cli.cli import app
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.waiting import eventually


@pytest.mark.parametrize("mode", ["initial", "never"])
def test_a_table_that_is_not_captured_any_more_is_not_exact(database: Database, deploy: Deploy, mode: str) -> None:
    database.execute("CREATE TABLE kept (id integer PRIMARY KEY); CREATE TABLE left_out (LIKE kept INCLUDING ALL)")
    deployment = deploy(snapshot={"mode": mode})
    deployment.start()
    database.execute("INSERT INTO kept VALUES (1); INSERT INTO left_out VALUES (1)")
    states = "SELECT replica_table, state FROM cdc.mirrored_table ORDER BY 1"
    deployment.wait_mirrored()
    both = [("public.kept", "exact"), ("public.left_out", "exact")]
    eventually(lambda: deployment.replica.execute(states) == both, 30, lambda: str(deployment.replica.execute(states)))
    deployment.settings["source"]["exclude"] = ["public.left_out"]
    deployment.write()
    deployment.bridge.signal(signal.SIGHUP)
    deployment.bridge.wait_said('"changed": ["source.exclude"]')
    database.execute("INSERT INTO kept VALUES (2); INSERT INTO left_out VALUES (2)")
    deployment.wait_mirrored()
    assert deployment.replica.execute(states) == [("public.kept", "exact"), ("public.left_out", "loading")]
    status = CliRunner().invoke(app, ["status", "-c", str(deployment.config)])
    assert "table public.left_out is no longer captured: its topic and its replica table miss" in status.output
    deployment.stop()
