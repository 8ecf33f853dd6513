"""What ``cdc status`` says of a replica that is on its way to being exact, with a real bridge and a real sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from cdc.cli.status_command import status
from cdc.lab.stack import Kafka
from tests.support.deployment import Deployment, deployed
from tests.support.servers import Database
from tests.support.waiting import eventually


def asked(deployment: Deployment) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and plain lines."""
    app = typer.Typer()
    app.command()(status)
    document, plain = (
        CliRunner().invoke(app, ["-c", str(deployment.config), *options]) for options in (["--json"], [])
    )
    return plain.exit_code, json.loads(document.stdout), plain.output


def states(document: dict[str, Any]) -> dict[str, str]:
    return {each["replica_table"]: each["state"] for each in document["sink"]["tables"]}


def wait_exact(deployment: Deployment, *tables: str) -> None:
    def exact() -> bool:
        sink = asked(deployment)[1]["sink"]
        return sink["exact"] and {each["replica_table"] for each in sink["tables"]} == set(tables)

    eventually(exact, 60, deployment.why_not)


def test_a_table_that_is_loading_is_shown_and_is_no_problem(
    database: Database, replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE first (id int PRIMARY KEY); INSERT INTO first VALUES (1)")
    with deployed(database, kafka.bootstrap, replica, tmp_path) as deployment, database.connect() as opener:
        deployment.start()
        wait_exact(deployment, "public.first")
        opener.execute("BEGIN")
        opener.execute("CREATE TEMP TABLE mine (id int)")  # its transaction is under way when the next table joins
        database.execute("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1), (2)")
        eventually(lambda: "public.late" in deployment.backfills(), 60, deployment.why_not)
        database.execute("INSERT INTO late VALUES (3)")
        eventually(lambda: "public.late" in states(asked(deployment)[1]), 60, deployment.why_not)

        code, document, plain = asked(deployment)
        assert (code, document["problems"]) == (0, [])
        assert (document["healthy"], document["sink"]["exact"]) == (True, False)
        assert states(document) == {"public.first": "exact", "public.late": "loading"}
        assert "public.late: loading, 1 rows applied; its backfill is running, 0% of it is published" in plain
        assert plain.endswith("is healthy; replica tables that are not exact yet: 1 loading\n")

        opener.execute("COMMIT")
        wait_exact(deployment, "public.first", "public.late")
        code, document, plain = asked(deployment)
        assert (code, states(document)) == (0, {"public.first": "exact", "public.late": "exact"})
        assert plain.endswith("is healthy\n")


def test_a_rebuild_is_shown_and_ends_exact(database: Database, replica: Database, kafka: Kafka, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)")
    with deployed(database, kafka.bootstrap, replica, tmp_path) as deployment:
        deployment.start()
        wait_exact(deployment, "public.t")
        deployment.stop()
        replica.execute("UPDATE cdc.mirrored_table SET state = 'rebuilding', reason = 'the operator asked for it'")
        code, document, plain = asked(deployment)
        assert code == 4, "neither bridge nor sink runs"
        assert not document["sink"]["exact"]
        assert "public.t: rebuilding, 1,000 rows applied; it is replayed from its topic: the operator asked" in plain
        deployment.start()
        wait_exact(deployment, "public.t")
        code, document, _ = asked(deployment)
        assert (code, document["healthy"]) == (0, True)
        deployment.assert_equal("public.t")
