"""Rows that may not leave: a reconciliation reads the source by the same condition, and finds what it hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.spark.report.document import from_json
from tests.support.deployment import Deploy
from tests.support.reconciling import run_command, table_of
from tests.support.servers import Database

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(600)]


def test_filtered_rows_are_identical_and_hidden_ones_are_extra(
    deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    for table in ("orders", "parts"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, region text, note text)")
        database.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {table} SELECT n, (ARRAY['eu', 'us'])[n % 2 + 1] FROM generate_series(1, 40) n")
    condition = "region = 'eu' -- or is it? 'us'"
    deployment = deploy(source={"rows": {"public.orders": condition, "public.parts": condition}})
    deployment.start()
    deployment.wait_backfilled()
    database.execute("UPDATE orders SET region = 'us' WHERE id = 2; UPDATE orders SET region = 'eu' WHERE id = 3")
    deployment.wait_mirrored()
    deployment.sink.stop()
    deployment.replica.execute("INSERT INTO orders VALUES (2, 'us', 'planted')")
    deployment.replica.execute("DELETE FROM orders WHERE id = 3")
    code, said = run_command(deployment, tmp_path / "report")
    report = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    found, whole = table_of(report, "public.orders"), table_of(report, "public.parts")
    assert code == 1, said
    assert (whole.verdict, whole.counts.source_rows) == ("identical", 20), said
    assert found.counts.source_rows == 20, said
    kinds = {(each.side, each.difference, each.key) for each in found.samples}
    assert kinds == {("replica", "extra_in_replica", '{"id":2}'), ("replica", "missing_in_replica", '{"id":3}')}, said
    deployment.stop()
