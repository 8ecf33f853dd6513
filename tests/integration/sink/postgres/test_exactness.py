"""No table that is not exact is called so: after cleaned backlogs, in topics made anew, over rows of somebody else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.contract.record import TableSchema
from cdc.lab.stack import Kafka
from cdc.sink.apply import session as mirror_session
from cdc.sink.apply.loop import CutReport, run_mirror
from cdc.sink.apply.topics import RebuildOrder
from cdc.sink.dialects import open_replica
from tests.integration.sink.postgres.conftest import plain_config, running, sink_config
from tests.property.test_equal_keys import make_folded
from tests.support.other_topics import CLEANED_SOON, lose_tombstones
from tests.support.reading import fold_topic
from tests.support.servers import Database
from tests.support.topic_settings import delete_records, set_topic
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually

Row = Mapping[str, Any]

_SINK = """
import sys, threading
from cdc.base import crashpoints
from cdc.sink.apply import session as mirror_session
from cdc.sink.apply.loop import run_mirror
from cdc.sink.apply.topics import RebuildOrder
from cdc.base.config import Config
from cdc.sink.dialects import open_replica
crashpoints.arm(sys.argv[2])
mirror_session.MAX_RECORDS, mirror_session.RECORDS_PER_POLL = 100, 40
config = Config.model_validate_json(sys.argv[1])
replica = open_replica(config, application_name="test")
run_mirror(config, replica, threading.Event(), order=RebuildOrder(sys.argv[3:]))
"""


def state(database: Database, table: str) -> tuple[str, str | None]:
    query = "select state, reason from cdc.mirrored_table where replica_table = %s"
    found: tuple[str, str | None] = database.execute(query, [f"public.{table}"])[0]
    return found


def cut(database: Database) -> str | None:
    lsn: str | None = database.execute("select lsn::text from cdc.cut")[0][0]
    return lsn


def wait_for_state(database: Database, table: str, wanted: str) -> None:
    eventually(lambda: state(database, table)[0] == wanted, message=lambda: str(state(database, table)))


def assert_holds(database: Database, topics: TopicWriter, table: TableSchema) -> None:
    """See that the replica table is the fold of its topic, row by row."""
    expected = [orjson.loads(each.value) for each in fold_topic(topics.options, table.topic).values()]
    rows = [row for (row,) in database.execute(f"select to_jsonb(t) from {table.name} t")]
    assert sorted(map(_text, rows)) == sorted(map(_text, expected))


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def publish(topics: TopicWriter, table: TableSchema, lsn: int, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
    with topics.kafka_transaction():
        topics.define(table)
        for seq, row in enumerate(rows, 1):
            topics.upsert(table, row, lsn, seq)
        for seq, row in enumerate(gone, len(rows) + 1):
            topics.delete(table, row, lsn, seq)
        topics.progress(lsn + 1)


def rows_of(*ids: int, v: int = 0) -> list[Row]:
    return [{"id": each, "v": v} for each in ids]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 100)
    monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 40)


@pytest.mark.usefixtures("little_memory")
def test_reader_of_a_cleaned_backlog_is_exact_at_its_end_only(kafka: Kafka, database: Database) -> None:
    """Of ten rows that changed two thousand times the cleaner left the newest; the progress topic has all positions."""
    topics = TopicWriter(kafka.bootstrap, partitions=1)
    table = topics.table("acc", id="int4", n="int4")
    with topics.kafka_transaction():
        topics.define(table)
        topics.progress(6)
    with topics.kafka_transaction():
        for i in range(1, 2_001):
            if i > 1_990:
                topics.upsert(table, {"id": i % 10, "n": i}, 10 * i)
            topics.progress(10 * i + 1)
    claims, stop = [], threading.Event()

    def on_cut(report: CutReport) -> None:
        found = database.execute(
            "select (select lsn - '0/0'::pg_lsn from cdc.cut), (select state from cdc.mirrored_table),"
            " (select coalesce(array_agg(n order by n), '{}') from acc)"
        )
        claims.append(found[0])
        if report.progress.lsn == 20_001 and report.is_true:
            stop.set()

    config = sink_config(topics, database)
    run_mirror(config, open_replica(config, application_name="test"), stop, on_cut)
    for lsn, said, rows in claims:
        truth = list(range(max(int(lsn - 1) // 10 - 9, 1), int(lsn - 1) // 10 + 1)) if lsn is not None else None
        assert lsn is None or rows == truth, f"at {lsn}"
        assert (said == "exact") == (lsn is not None)
    assert claims[-1] == (20_001, "exact", list(range(1_991, 2_001)))


def test_topic_made_anew_while_the_sink_was_away(topics: TopicWriter, database: Database, config: Config) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(300)))
    with topics.kafka_transaction():
        topics.know(table.topic)
        topics.progress(12)
    with running(config, database) as mirror:
        mirror.wait_for_cut(12)
    topics.delete_topic(table.topic)
    topics.create_topic(table.topic)
    with running(config, database) as mirror:
        mirror.wait_for_cut(12)
        assert state(database, "items")[0] != "exact", "the bridge has not met this topic, nor published what it lost"
        with topics.kafka_transaction():
            topics.know(table.topic)
            topics.backfill(table, 20, cause="gap", state="waiting")
            topics.progress(20)
        with topics.kafka_transaction():
            for each in range(100, 300):
                topics.backfilled(table, {"id": each, "v": 1}, 20, each)
            topics.progress(20)
        mirror.wait_for_cut(20)
        assert state(database, "items")[0] != "exact", "its backfill is not done"
        with topics.kafka_transaction():
            topics.upsert(table, {"id": 500, "v": 2}, 30)
            topics.backfill(table, 30, state="done", whole=True)
            topics.progress(31)
        mirror.wait_for_cut(31)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)
    assert database.execute("select count(*), min(id) from items") == [(201, 100)]


def test_topic_made_anew_under_the_running_sink(topics: TopicWriter, database: Database, config: Config) -> None:
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, other, 5, rows_of(1))
    publish(topics, table, 10, rows_of(*range(20)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        topics.delete_topic(table.topic)
        wait_for_state(database, "items", "stopped")
        publish(topics, other, 20, rows_of(2))
        mirror.wait_for_cut(21)
        assert state(database, "other")[0] == "exact"
        topics.create_topic(table.topic)
        publish(topics, table, 30, rows_of(*range(10, 20), v=1))
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)
    assert_holds(database, topics, other)


def test_topic_that_lost_its_oldest_records(topics: TopicWriter, database: Database, config: Config) -> None:
    """Somebody deleted records up to behind the sink's offsets: among them deletions that it has not seen."""
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(50)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    publish(topics, table, 20, [], rows_of(*range(25)))
    delete_records(topics.bootstrap, table.topic)
    publish(topics, table, 30, rows_of(*range(25, 50), v=1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(31)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)


def test_sink_that_was_away_for_longer_than_tombstones_are_kept(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1, 2))
    publish(topics, other, 12, rows_of(1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
    database.execute("insert into items values (99, 0)")  # as if its tombstone had come and gone
    database.execute("update cdc.cut set caught_up_at = caught_up_at - interval '23 hours'")
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
        assert state(database, "items")[0] == "exact"
        assert database.execute("select count(*) from items") == [(3,)], "it was not away for long: nothing is rebuilt"
    database.execute("update cdc.cut set caught_up_at = caught_up_at - interval '2 days'")
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)
    assert_holds(database, topics, other)
    assert database.execute("select count(*) from pg_class where relname like 'seen%'") == [(0,)]
    assert database.execute("select now() - caught_up_at < interval '1 minute' from cdc.cut") == [(True,)]


def test_zombies_end_with_the_rebuild(topics: TopicWriter, database: Database, config: Config) -> None:
    """Rows are deleted while nobody reads, and the cleaner removes even the tombstones."""
    table = topics.table("items", id="int4", v="int4")
    for name, value in CLEANED_SOON.items():
        set_topic(topics.bootstrap, table.topic, name, value)
    publish(topics, table, 10, rows_of(*range(50)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    publish(topics, table, 20, [], rows_of(*range(25)))
    others = range(1000, 1010)
    last = lose_tombstones(topics, table.topic, lambda lsn: publish(topics, table, lsn, rows_of(*others, v=lsn)), 30)
    database.execute("update cdc.cut set caught_up_at = caught_up_at - interval '1 hour'")
    with running(config, database) as mirror:
        mirror.wait_for_cut(last + 1)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)
    assert database.execute("select count(*) from items") == [(35,)]


def test_rows_of_somebody_else_are_refused_until_the_operator_speaks(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    database.execute("create table taken (b text, a int4, v text, primary key (b, a))")
    database.execute("insert into taken values ('x', 1, 'theirs'), ('y', 9, 'from a restore of last week')")
    taken = topics.table("taken", ("b", "a"), a="int4", b="text", v="text")
    good = topics.table("good", id="int4", v="int4")
    publish(topics, taken, 10, [{"a": 1, "b": "x", "v": "ours"}, {"a": 2, "b": "x", "v": "new"}])
    publish(topics, good, 20, rows_of(1))
    for _ in range(2):
        with running(config, database) as mirror:
            mirror.wait_for_cut(21)
        said, reason = state(database, "taken")
        assert said == "stopped"
        assert "holds rows that this sink did not write" in (reason or "")
        assert "cdc sink --rebuild public.taken" in (reason or "")
        assert state(database, "good") == ("exact", None)
        assert database.execute("select count(*) from taken") == [(2,)]
    with running(config, database, RebuildOrder(["public.takne"])) as mirror:
        error = mirror.wait_for_error()
    assert isinstance(error, ConfigError)
    assert "public.takne" in error.message
    with running(config, database, RebuildOrder(["public.taken"])) as mirror:
        wait_for_state(database, "taken", "exact")
    assert_holds(database, topics, taken)
    publish(topics, taken, 30, [], [{"a": 1, "b": "x"}])
    with running(config, database) as mirror:
        mirror.wait_for_cut(31)
        assert state(database, "taken") == ("exact", None), "once asked, once rebuilt"
    assert_holds(database, topics, taken)


def test_a_rebuild_under_keys_whose_operators_no_search_path_reaches(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    """A key of an extension's type (ltree): the table was filled, and stopped for ever when rows were to be deleted."""
    make_folded(database)
    table = topics.table("items", id='"public"."folded"', v="int4")
    publish(topics, table, 10, [{"id": "a", "v": 1}, {"id": "b", "v": 1}])
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("insert into items values ('C', 1)")
    publish(topics, table, 20, [{"id": "B", "v": 2}], gone=[{"id": "b"}])
    with running(config, database, RebuildOrder(["public.items"])) as mirror:
        mirror.wait_for_cut(21)
        wait_for_state(database, "items", "exact")
    assert database.execute("select id::text, v from items order by v") == [("a", 1), ("B", 2)]


def test_offsets_that_were_deleted_by_hand_make_no_ghosts(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(10)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    for name in ("cut", "partition_offset", "mirrored_table"):
        database.execute(f"delete from cdc.{name}")
    publish(topics, table, 20, [], rows_of(1))
    with running(config, database) as mirror:
        eventually(lambda: mirror.reports)
    assert state(database, "items")[0] == "stopped"
    with running(config, database, RebuildOrder(everything=True)) as mirror:
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)


def test_replica_table_that_was_dropped_is_filled_again(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(10)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("drop table items")
    publish(topics, table, 20, rows_of(1, v=1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)


def test_rebuild_killed_at_any_commit_beside_a_writer(
    topics: TopicWriter, database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table that is rebuilt is exact when it holds what its topic holds; another one is exact all the while."""
    big, other = topics.table("big", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, other, 5, rows_of(1))
    publish(topics, big, 10, rows_of(*range(2_000)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("insert into big select n, -1 from generate_series(5000, 5099) n")
    lsn, seen = 20, []

    def write() -> None:
        nonlocal lsn
        publish(topics, other, lsn, rows_of(1, v=lsn))
        publish(topics, big, lsn + 2, rows_of(lsn % 2_000, 3_000 + lsn, v=lsn), rows_of((7 * lsn) % 2_000))
        lsn += 10

    def look() -> None:
        seen.append(
            database.execute(
                "select (select lsn - '0/0'::pg_lsn from cdc.cut), (select v from other),"
                " (select state from cdc.mirrored_table where replica_table = 'public.other'),"
                " (select state from cdc.mirrored_table where replica_table = 'public.big'),"
                " (select count(*) from big where v = -1)"
            )[0]
        )

    text = json.dumps(plain_config(topics, database))
    for visit, point in enumerate(("sink.before_replica_commit", "sink.after_replica_commit", "sink.before_apply"), 2):
        asked = ["public.big"] if visit == 2 else []
        arguments = [sys.executable, "-c", _SINK, text, f"{point}:{visit + 2}", *asked]
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as sink:
            while sink.poll() is None:
                write()
                look()
        assert sink.returncode == -signal.SIGKILL
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 100)
    with running(config, database) as mirror:
        mirror.wait_for_cut(lsn - 7)
        wait_for_state(database, "big", "exact")
        write()
        mirror.wait_for_cut(lsn - 7)
    look()
    assert_holds(database, topics, big)
    assert_holds(database, topics, other)
    assert "rebuilding" in {each[3] for each in seen}
    assert "exact" in {each[2] for each in seen if each[3] == "rebuilding"}, "other tables go on"
    for cut_at, value, said_other, said_big, ghosts in seen:
        if said_other == "exact" and cut_at is not None and cut_at > 20:
            assert value == (int(cut_at) - 1) // 10 * 10, f"other at {cut_at}"
        assert said_big != "exact" or ghosts in (0, 100 if cut_at == 11 else 0)
