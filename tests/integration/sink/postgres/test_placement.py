"""A table that cannot have its place in the replica stops with its reason, and the others go on."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.integration.sink.postgres.conftest import running, sink_config
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter


def states(database: Database) -> dict[str, tuple[str, str]]:
    rows = database.execute("select topic, state, coalesce(reason, '') from cdc.mirrored_table")
    return {topic: (state, reason) for topic, state, reason in rows}


def test_taken_and_overlong_names_stop_their_tables_only(topics: TopicWriter, database: Database) -> None:
    """A schema joins that has tables of the same names; another sink is configured into the same place."""
    config = sink_config(topics, database, schema="mirror", prefix="p" * 20)
    first = topics.table("orders", id="int4")
    second = replace(topics.table("more", id="int4"), namespace="other", name="orders", fingerprint="1" * 16)
    long = replace(topics.table("long", id="int4"), name="ü" * 31, fingerprint="2" * 16)
    with running(config, database) as mirror:
        with topics.kafka_transaction():
            topics.define(first)
            topics.upsert(first, {"id": 1}, 10)
            topics.progress(11)
        mirror.wait_for_cut(11)
        with topics.kafka_transaction():
            for table in (second, long):
                topics.define(table)
                topics.upsert(table, {"id": 2}, 20)
            topics.upsert(first, {"id": 2}, 20, 2)
            topics.progress(21)
        mirror.wait_for_cut(21)
    name = f"{'p' * 20}orders"
    found = states(database)
    assert found[first.topic] == ("exact", "")
    assert found[second.topic][0] == found[long.topic][0] == "stopped"
    assert f"replica table mirror.{name} is already the mirror of topic '{first.topic}'" in found[second.topic][1]
    assert "sink.tables: {'other.orders': …}" in found[second.topic][1]
    assert "longer than 63 bytes" in found[long.topic][1]
    assert database.execute(f"select id from mirror.{name} order by id") == [(1,), (2,)]
    # what the reasons recommend
    places = {"other.orders": "mirror.other_orders", f"public.{long.name}": "mirror.long"}
    config = sink_config(topics, database, schema="mirror", prefix="p" * 20, tables=places)
    with running(config, database) as mirror:
        with topics.kafka_transaction():
            topics.progress(31)
        mirror.wait_for_cut(31)
    assert set(states(database).values()) == {("exact", "")}
    assert database.execute("select id from mirror.other_orders union all select id from mirror.long") == [(2,), (2,)]
    # another sink, into the same tables
    writer = TopicWriter(topics.bootstrap)
    other, free = writer.table("orders", id="int4"), writer.table("free", id="int4")
    with writer.kafka_transaction():
        for table in (other, free):
            writer.define(table)
            writer.upsert(table, {"id": 9}, 40)
        writer.progress(41)
    with running(sink_config(writer, database, schema="mirror", prefix="p" * 20), database) as mirror:
        mirror.wait_for_cut(41)
    state, reason = states(database)[other.topic]
    assert (state, f"(sink '{topics.name}')" in reason) == ("stopped", True)
    assert database.execute(f"select id from mirror.{'p' * 20}free") == [(9,)]
    assert database.execute(f"select id from mirror.{name} order by id") == [(1,), (2,)]


def test_table_that_gets_another_topic_stops_and_its_remedy_helps(topics: TopicWriter, database: Database) -> None:
    """``topics.names`` changed on a live table: the former topic's rows are no longer the table's, so not exact."""
    config = sink_config(topics, database)
    table, good = topics.table("items", id="int4", v="int4"), topics.table("good", id="int4")
    moved = replace(table, topic=f"{topics.name}.v2")
    topics.create_topic(moved.topic)
    with running(config, database) as mirror:
        with topics.kafka_transaction():
            topics.define(table)
            topics.define(good)
            topics.upsert(table, {"id": 1, "v": 1}, 10)
            topics.upsert(table, {"id": 2, "v": 1}, 10, 2)
            topics.progress(11)
        mirror.wait_for_cut(11)
        with topics.kafka_transaction():
            topics.define(moved)
            topics.upsert(moved, {"id": 1, "v": 2}, 20)
            topics.upsert(good, {"id": 1}, 20, 2)
            topics.progress(21)
        mirror.wait_for_cut(21)
    found = states(database)
    assert {topic: state for topic, (state, _) in found.items()} == {
        table.topic: "stopped",
        moved.topic: "stopped",
        good.topic: "exact",
    }
    assert database.execute("select id from good") == [(1,)]
    reason = found[table.topic][1]
    assert f"published to topic '{table.topic}' and is now published to '{moved.topic}'" in reason
    remedy = re.search("DROP TABLE .*?; DELETE FROM .*?;", reason)
    assert remedy is not None
    assert remedy[0] in found[moved.topic][1]
    # a place of its own for the new topic: the former's reason goes on naming the table that it has
    with running(sink_config(topics, database, tables={"public.items": "public.items_v2"}), database) as mirror:
        mirror.wait_for_cut(21)
    assert remedy[0] in states(database)[table.topic][1]
    for state in ("mirrored_table", "partition_offset"):
        database.execute(f"DELETE FROM cdc.{state} WHERE topic = %s", [moved.topic])
    database.execute(remedy[0])
    with running(config, database) as mirror:
        with topics.kafka_transaction():
            topics.progress(31)
        mirror.wait_for_cut(31)
    assert database.execute("select id, v from items order by id") == [(1, 2)]
    assert states(database) == {moved.topic: ("exact", ""), good.topic: ("exact", "")}
