"""Backfills, ghosts, kills and every type: whatever the state topic gets, the history gets, once."""

from __future__ import annotations

import signal

import pytest

from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.topics.history.reading import assert_history, parsed
from tests.support.deployment import Deploy
from tests.support.sampling import sampled
from tests.support.type_matrix import matrix_tables


def test_every_type_with_its_old_row(deploy: Deploy) -> None:
    deployment = deploy(topics={"history": ["*.*"], "partitions": 1})
    with prepare(deployment.source) as connection:
        tables = [table for table in matrix_tables(connection) if table.full]
        for table in tables:
            table.create(connection)
        deployment.start_bridge()
        for table in tables:
            table.insert(connection)
            table.update(connection)
            table.delete(connection)
    assert_history(deployment, *(table.qualified for table in tables))
    for table in tables:
        before: dict[str, object] = {}
        for record in parsed(deployment, table.qualified):
            if record.old is not None and record.op != "c":  # of a changed key, both records have it
                assert before.pop(record.old["id"]) == record.old
            if record.new is not None:
                before[record.new["id"]] = record.new
        assert before
    deployment.bridge.stop()


def test_backfilled_rows_and_ghosts(deploy: Deploy) -> None:
    deployment = deploy(topics={"history": ["public.old"]}, source={"on_gap": "rebackfill"})
    deployment.source.execute("CREATE TABLE old (id integer PRIMARY KEY, n integer)")
    deployment.source.execute("INSERT INTO old SELECT i, i FROM generate_series(1, 3000) i")
    deployment.start_bridge()
    deployment.wait_backfilled("public.old")
    assert_history(deployment, "public.old")
    records = parsed(deployment, "public.old")
    assert {(each.op, each.xid, each.old is None) for each in records} == {("r", None, True)}
    assert len(records) == 3000
    deployment.bridge.stop()
    deployment.source.execute(f"SELECT pg_drop_replication_slot('{deployment.slot()}')")
    deployment.source.execute("DELETE FROM old WHERE id <= 10")
    deployment.source.execute("SELECT pg_switch_wal()")
    deployment.start_bridge()
    deployment.bridge.wait_said("backfill done")
    deployment.wait_backfilled("public.old")
    assert_history(deployment, "public.old")
    swept = [each for each in parsed(deployment, "public.old") if each.op == "d"]
    assert [(each.new, each.old, each.xid) for each in swept] == [(None, None, None)] * 10
    deployment.bridge.stop()


POINTS = (
    "bridge.before_kafka_commit:2",
    "bridge.before_kafka_commit:3",
    "bridge.after_kafka_commit:2",
    "bridge.inside_truncate:1",
    "backfill.before_chunk_done:1",
)


@pytest.mark.parametrize("point", sampled(POINTS, POINTS[1:2]))
def test_killed_between_produce_and_commit(deploy: Deploy, point: str) -> None:
    deployment = deploy(topics={"history": ["public.big"]})
    source = deployment.source
    source.execute("CREATE TABLE big (id integer PRIMARY KEY, note text)")
    source.execute("ALTER TABLE big REPLICA IDENTITY FULL")
    source.execute("INSERT INTO big SELECT i, 'before' FROM generate_series(1, 2000) i")
    deployment.start_bridge(crashpoint=point)
    source.execute("INSERT INTO big SELECT i, 'row' FROM generate_series(10001, 61000) i")
    source.execute("UPDATE big SET note = 'changed' WHERE id % 10 = 0")
    source.execute("UPDATE big SET id = -id WHERE id % 100 = 0")
    if "truncate" in point:
        source.execute("TRUNCATE big")
        source.execute("INSERT INTO big SELECT i, 'again' FROM generate_series(1, 100) i")
    assert deployment.bridge.wait(60) == -signal.SIGKILL
    deployment.start_bridge()
    deployment.wait_backfilled("public.big")
    assert_history(deployment, "public.big")
    positions = [(each.position, each.op, str(each.new or each.old)) for each in parsed(deployment, "public.big")]
    if "truncate" not in point:  # its tombstones share one position and tell no row
        assert len(set(positions)) == len(positions) > 50_000
    deployment.bridge.stop()
