"""Columns that may not leave: a reconciliation compares what is left of them, and tells nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.spark.report.document import from_json
from tests.support.deployment import Deploy
from tests.support.reconciling import run_command, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(600)]

_MASKS = {"email": "sha256", "born": "sha256-joinable", "phone": "last4", "name": None, "doc": "sha256"}
_TABLE = "(id int PRIMARY KEY, email text, born timestamptz, phone text, name text, doc jsonb, secret text, n float8)"
_ROWS = """INSERT INTO {} SELECT n, CASE WHEN n % 3 > 0 THEN 'canary é' || n END, '2026-01-02 03:04:05Z',
    left('canary+49123', n), 'canary', CASE WHEN n % 2 > 0 THEN 'null' ELSE '"canary"' END::jsonb, 'canary', n / 3.0
    FROM generate_series(1, 40) n"""


def test_masked_rows_are_identical_and_damage_is_found(deploy: Deploy, database: Database, tmp_path: Path) -> None:
    """In a table that is read alone, and in small ones that are read together; in the topic and in the replica."""
    for table in ("person", "friend"):
        database.execute(f"CREATE TABLE {table} {_TABLE}")
        database.execute(_ROWS.format(table))
    rules = {f"public.{table}": {"exclude": ["secret"], "mask": _MASKS} for table in ("person", "friend")}
    rules["public.friend"]["mask"] = {**_MASKS, "id": "sha256"}  # the key
    salt = "a salt of the test that is longer than the sixty-four bytes of a block"
    deployment = deploy(source={"columns": rules, "salt": salt}, topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    deployment.sink.stop()
    newest = {each.key: each for each in deployment.records("public.person")}
    damage = Damage(deployment)
    for number, column in ((2, "email"), (4, "born"), (6, "doc")):
        record = newest[b'{"id":%d}' % number]
        row = json.loads(record.value or b"") | {column: "0" * 64}
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
        damage.write("public.person", record.key or b"", text, header=record.header)
    damage.done()
    deployment.replica.execute("UPDATE person SET phone = '****9124', name = 'x' WHERE id = 12")
    code, said = run_command(deployment, tmp_path / "report")
    report = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    found, whole = table_of(report, "public.person"), table_of(report, "public.friend")
    assert code == 1, said
    assert (whole.verdict, whole.counts.source_rows) == ("identical", 40), said
    assert (found.counts.source_rows, found.counts.differences, found.counts.value_mismatch) == (40, 3, 3), said
    of_replica = {json.loads(each.key)["id"] for each in found.samples if each.side == "replica"}
    assert 12 in of_replica, found.samples
    written = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".yaml")
    assert b"0" * 64 in written
    assert b"canary" not in written + said.encode()
    assert salt.encode() not in written
    deployment.stop()
