"""Two bridges on one source, one in C and one in Python: the same bytes in their topics."""

from __future__ import annotations

from typing import Final

import pytest

from cdc.base.compiled import language
from cdc.contract.header import BACKFILL, parse_header
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database

COLUMNS: Final = (
    "id bigint, region text, note text, amount numeric, tags text[], numbers int[], payload jsonb, raw bytea,"
    " happy boolean, ratio float8, big text, PRIMARY KEY (region, id)"
)
ROWS: Final = """
INSERT INTO {table} SELECT i, 'r' || i % 3, CASE WHEN i % 5 > 0 THEN E'é"\\\\\\t\\n' || i END, i / 7.0,
  ARRAY['a', NULL, 'b "c"'], ARRAY[i, NULL], CASE i % 4 WHEN 0 THEN 'null' ELSE '{{"a": [1, null]}}' END::jsonb,
  decode(md5(i::text), 'hex'), i % 2 = 0, CASE i % 3 WHEN 0 THEN 'NaN' ELSE i / 3.0 END,
  CASE WHEN i % 10 = 0 THEN (SELECT string_agg(md5(j::text), '') FROM generate_series(1, {size}) j) END
FROM generate_series({first}, {last}) i
"""
CHANGES: Final = (
    "UPDATE {table} SET amount = amount + 1 WHERE id % 3 = 0",
    "UPDATE {table} SET region = 'moved' WHERE id % 11 = 0",
    "DELETE FROM {table} WHERE id % 7 = 0",
    "ALTER TABLE {table} ADD COLUMN later int DEFAULT 7, DROP COLUMN ratio",
    "UPDATE {table} SET note = note || ', again'",
)
TABLES: Final = {"public.small": 3, "public.large": 300}
"""Table → length of its largest values. Those of the second are stored out of line, and in the old rows of the stream:
what would have to be read again could be newer in one topic than in the other."""

pytestmark = pytest.mark.skipif(language() != "C", reason="there is only one way here")


def contents(deployment: Deployment, table: str) -> tuple[list[object], list[object]]:
    """Streamed records, whole and in the order of each partition; and what was backfilled, without headers."""
    streamed: list[object] = []
    backfilled: list[object] = []
    for record in deployment.records(table):
        assert record.header is not None
        if parse_header(record.header).op == BACKFILL:
            backfilled.append((record.partition, record.key, record.value))
        else:
            streamed.append((record.partition, record.key, record.value, record.header))
    return sorted(streamed, key=lambda each: each[0]), sorted(backfilled, key=repr)  # type: ignore[index]  # None would fail the test


def test_both_ways_write_the_same(database: Database, deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    for table, size in TABLES.items():
        database.execute(f"CREATE TABLE {table} ({COLUMNS})")
        database.execute(ROWS.format(table=table, size=size, first=1, last=500))
    database.execute("ALTER TABLE large REPLICA IDENTITY FULL")
    in_c, in_python = deploy(), deploy()
    in_c.start_bridge()
    monkeypatch.setenv("CDC_PURE_PYTHON", "1")
    in_python.start()
    for deployment, way in ((in_c, "C"), (in_python, "Python")):
        assert f'"hot_path": "{way}"' in deployment.bridge.log.read_text(encoding="utf-8")
        deployment.wait_backfilled(*TABLES)
    for table, size in TABLES.items():
        database.execute(ROWS.format(table=table, size=size, first=501, last=1_500))
        for change in CHANGES:
            database.execute(change.format(table=table))
    in_c.assert_published(*TABLES)
    in_python.assert_equal(*TABLES)
    for table in TABLES:
        found, expected = contents(in_c, table), contents(in_python, table)
        assert found == expected
        assert len(found[0]) > 1_800
        assert len(found[1]) == 500
