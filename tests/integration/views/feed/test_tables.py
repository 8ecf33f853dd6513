"""Topics of a bridge → tables of a view: rows, indexes, keys, what is no row, and generations."""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import replace
from typing import Any

import pytest

from cdc.base.errors import ConfigError, ReplicaRefused, StoreRefused
from cdc.base.lsn import LSN
from cdc.contract.record import SchemaColumn
from cdc.kafka.replay import foreign
from cdc.lab.stack import Redis
from cdc.views.feed.stores import TABLES, ViewStores
from cdc.views.store.memory import Contents, MemoryStore
from cdc.views.table.errors import NotLoaded
from cdc.views.table.table_view import TableView
from tests.integration.views.feed.conftest import View, assert_holds, publish, rows_of, running, view_config
from tests.support.topic_settings import delete_records
from tests.support.topic_writer import TopicWriter
from tests.support.views import facts_of, look, state_of
from tests.support.waiting import eventually


def test_tables_change_together_and_go_on_where_they_ended(topics: TopicWriter, contents: Contents) -> None:
    items, orders = topics.table("items", id="int4", v="int4"), topics.table("orders", id="int4", v="int4")
    publish(topics, items, 10, rows_of(*range(50)))
    publish(topics, orders, 20, rows_of(*range(30)))
    config = view_config(topics)
    with running(config, contents) as view:
        view.wait_for_cut(21)
        assert_holds(view, topics, items)
        seen = assert_holds(view, topics, orders)
        assert seen.lsn == 21
        assert {row.lsn for row in seen.rows.values()} == {20}
        assert {row.ts for row in seen.rows.values()} == {1_700_000_000_000_020}
    before = facts_of(MemoryStore(contents))
    publish(topics, items, 30, rows_of(7, v=1), rows_of(8, 9))
    with running(config, contents) as view:
        view.wait_for_cut(31)
        seen = assert_holds(view, topics, items)
        assert len(seen.rows) == 48
        assert seen.facts.view is not None
        assert before.view is not None
        assert seen.facts.view.store_id == before.view.store_id
        assert {each.generation for each in seen.facts.tables.values()} == {1}
        assert sum(seen.facts.offsets[items.topic]) > sum(before.offsets[items.topic])


def test_composite_keys_stand_in_order(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("parts", ("region", "number"), region="text", number="int8", v="int4")
    rng = random.Random(3)
    rows = [
        {"region": region, "number": number, "v": 0}
        for region in ("eu", "eua", "é", "us")
        for number in rng.sample(range(-500, 500), 20)
    ]
    publish(topics, table, 10, rows, rng.sample(rows, 10))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
        seen = assert_holds(view, topics, table)
        keys = [(row["region"], row["number"]) for row in seen.values()]
        assert keys == sorted(keys)
        assert len(keys) == 70


def test_indexes_are_right_after_any_changes(topics: TopicWriter, contents: Contents) -> None:
    """Read with each look: ``tests.support.views`` compares indexes with rows by brute force."""
    table = topics.table("orders", id="int4", customer="int4", weight="float8", note="text")
    rng = random.Random(11)
    config = view_config(topics, index={"public.orders": ["customer", ["weight", "note"]]})
    with running(config, contents) as view:
        for lsn in range(10, 130, 10):
            row_ids = rng.sample(range(60), 25)
            changed = [
                {
                    "id": each,
                    "customer": rng.choice([None, 1, 2, 3]),
                    "weight": rng.choice([1, 1.0, -0.5, "NaN", None]),
                    "note": rng.choice(["a", "ab", "x" * 400, None]),
                }
                for each in row_ids[:18]
            ]
            publish(topics, table, lsn, changed, [{"id": each} for each in row_ids[18:]])
            view.wait_for_cut(lsn + 1)
            assert_holds(view, topics, table)


def test_an_index_that_is_new_in_the_configuration_is_built_from_the_rows(
    topics: TopicWriter, contents: Contents
) -> None:
    table = topics.table("orders", id="int4", customer="int4", note="text")
    rows = [{"id": each, "customer": each % 7, "note": "x"} for each in range(200)]
    publish(topics, table, 10, rows)
    for index in ({}, {"public.orders": ["customer"]}, {"public.orders": ["note", ["customer", "note"]]}):
        with running(view_config(topics, index=index), contents) as view:
            view.wait_for_cut(11)
            seen = assert_holds(view, topics, table)
            assert len(seen.table.indexes) == len(index.get("public.orders", ()))
            assert seen.table.generation == 1, "nothing was read anew for it"


def test_an_index_over_a_column_that_is_not_there(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("orders", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1))
    with running(view_config(topics, index={"public.orders": ["custmer"]}), contents) as view:
        error = view.wait_for_error()
    assert isinstance(error, ConfigError)
    assert "view.index: table public.orders has no column custmer" in str(error)
    assert "name some of: id, v" in str(error)


def test_only_the_wanted_tables_are_kept(topics: TopicWriter, contents: Contents) -> None:
    items, orders = topics.table("items", id="int4", v="int4"), topics.table("orders", id="int4", v="int4")
    publish(topics, items, 10, rows_of(1, 2))
    publish(topics, orders, 20, rows_of(1))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(21)
    with running(view_config(topics, tables=["public.*"], exclude=["public.items"]), contents) as view:
        view.wait_for_cut(21)
        assert set(facts_of(view.reader).tables) == {"public.orders"}
        assert [space for space, entries in contents.spaces.items() if space.startswith("rows/") and entries] == [
            "rows/2/1"
        ]
    publish(topics, items, 30, [], rows_of(1))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(31)
        view.wait_for_state("public.items", "exact")
        assert_holds(view, topics, items)


def test_what_is_no_row_stops_nothing_and_is_told_of(topics: TopicWriter, contents: Contents) -> None:
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1, 2, 3, 4, 5))
    header = topics.header(table, 20)
    with topics.kafka_transaction():
        topics.write(table.topic, b'{"id":1}', b"[1]", header)
        topics.write(table.topic, b'{"id":2}', b'{"id":2,', header)
        topics.write(table.topic, b'{"id":3}', b'{"id":3,"v":9}', b"")
        topics.write(table.topic, b'{"no":4}', b'{"id":4,"v":9}', header)
        topics.write(table.topic, b"garbage", b'{"id":4,"v":9}', header)
        topics.upsert(other, {"id": 1, "v": 1}, 20)
        topics.define(other)
        topics.progress(21)
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(21)
        assert_holds(view, topics, other)
        seen = view.look("public.items")
        assert (seen.table.state, seen.table.reason) == ("degraded", "5 of its records are not rows")
        assert set(seen.rows) == {b'{"id":4}', b'{"id":5}'}
        told = {each.key: each.reason for each in seen.unreadable.values()}
        assert told['{"id":1}'] == "its value is not a JSON object"
        assert told['{"id":2}'].startswith("its value is not JSON: ")
        assert "no header `cdc`" in told['{"id":3}']
        assert told['{"no":4}'] == "its key is not a key of (id)"
        assert set(told) == {'{"id":1}', '{"id":2}', '{"id":3}', '{"no":4}', "garbage"}
        publish(topics, table, 30, rows_of(1, v=2), rows_of(2))
        view.wait_for_cut(31)
        assert view.look("public.items").table.unreadable == 3
        with topics.kafka_transaction():
            topics.upsert(table, {"id": 3, "v": 3}, 40)
            topics.write(table.topic, b"garbage", None, header)
            topics.write(table.topic, b'{"no":4}', None, header)
            topics.progress(41)
        view.wait_for_cut(41)
        assert_holds(view, topics, table)


def test_a_document_that_only_postgresql_understands_is_a_row(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("documents", id="int4", doc="json")
    documents = [b'"\\ud800"', b"1e999", b"[" * 3000 + b"]" * 3000, '"é"'.encode()]
    with topics.kafka_transaction():
        topics.define(table)
        for number, document in enumerate(documents):
            value = b'{"id":%d,"doc":%b}' % (number, document)
            topics.write(table.topic, b'{"id":%d}' % number, value, topics.header(table, 10, number + 1))
        topics.progress(11)
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
        seen = view.look("public.documents")
        assert seen.table.state == "exact"
        assert len(seen.rows) == len(documents)


def test_a_transaction_larger_than_memory_is_seen_whole_or_not_at_all(
    topics: TopicWriter, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.sink.apply.session.MAX_RECORDS", 500)
    monkeypatch.setattr("cdc.sink.apply.session.RECORDS_PER_POLL", 200)
    one, two = topics.table("one", id="int4", v="int4"), topics.table("two", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(one)
        topics.define(two)
        topics.progress(5)
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(5)
        ids = range(3_000)
        with topics.kafka_transaction():
            for number in ids:
                topics.upsert(one, {"id": number, "v": 1}, 10, 2 * number + 1)
                topics.upsert(two, {"id": number, "v": 1}, 10, 2 * number + 2)
            topics.progress(11)
        counts: set[tuple[int, int]] = set()
        reader = MemoryStore(contents)

        def seen_all() -> bool:
            found = reader.read(lambda snapshot: (snapshot.count("rows/1/1"), snapshot.count("rows/2/1")))
            counts.add(found)
            return found == (3_000, 3_000)

        eventually(seen_all, is_momentary=True)
        assert counts <= {(0, 0), (3_000, 3_000)}
        view.wait_for_cut(11)
        assert_holds(view, topics, one)


def test_a_key_that_became_another_one(topics: TopicWriter, contents: Contents) -> None:
    """The bridge deletes every old key and publishes the table again; the old rows are served until it is whole."""
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1, 2, 3))
    rekeyed = replace(table, key=("v", "id"), fingerprint="00000000000000ee")
    with running(view_config(topics, index={"public.items": ["v"]}), contents) as view:
        view.wait_for_cut(11)
        with topics.kafka_transaction():
            topics.backfill(table, 20, cause="gap", state="waiting")
            for each in (1, 2, 3):
                topics.delete(table, {"id": each}, 20, each)
            topics.define(rekeyed)
            topics.progress(20)
        eventually(lambda: look(view.reader, "public.items").table.filling)  # type: ignore[union-attr]  # None would fail the test
        seen = view.look("public.items")
        assert (seen.table.state, seen.table.reason) == ("suspect", "its key has changed")
        assert [column.name for column in seen.table.key] == ["id"]
        assert len(seen.rows) == 3
        with topics.kafka_transaction():
            for each in (1, 2, 3):
                topics.backfilled(rekeyed, {"id": each, "v": 9}, 25, each)
            topics.backfill(table, 30, state="done", whole=True)
            topics.progress(30)
        seen = view.wait_for_state("public.items", "exact")
        assert [column.name for column in seen.table.key] == ["v", "id"]
        assert_holds(view, topics, rekeyed)


def test_a_column_is_added_and_another_is_dropped(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1, 2))
    wider = replace(
        table, fingerprint="00000000000000dd", columns=(SchemaColumn("id", "int4"), SchemaColumn("name", "text"))
    )
    with running(view_config(topics, index={"public.items": ["v"]}), contents) as view:
        view.wait_for_cut(11)
        publish(topics, wider, 20, [{"id": 2, "name": "two"}, {"id": 3, "name": "three"}])
        view.wait_for_cut(21)
        seen = assert_holds(view, topics, wider)
        assert [column.name for column in seen.table.columns] == ["id", "name"]
        assert seen.table.generation == 1


def test_a_table_that_is_renamed_in_its_topic_keeps_its_rows(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1, 2))
    renamed = replace(table, name="things", fingerprint="00000000000000cc")
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
        publish(topics, renamed, 20, rows_of(3))
        view.wait_for_cut(21)
        assert set(facts_of(view.reader).tables) == {"public.things"}
        assert_holds(view, topics, renamed)


def test_a_topic_that_lost_records_is_read_into_a_new_generation(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(50)))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
    publish(topics, table, 20, [], rows_of(*range(25)))
    delete_records(topics.bootstrap, table.topic)
    publish(topics, table, 30, rows_of(*range(25, 50), v=1))
    with running(view_config(topics), contents) as view:
        while (seen := view.look("public.items")).table.generation == 1:
            assert len(seen.rows) == 50
        view.wait_for_cut(31)
        seen = assert_holds(view, topics, table)
        assert seen.table.generation == 2
        kept = {space for space, entries in contents.spaces.items() if entries and not space.startswith(("f", "j"))}
        assert kept == {"rows/1/2"}


def test_a_topic_made_anew_under_the_running_feed(topics: TopicWriter, contents: Contents) -> None:
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, other, 5, rows_of(1))
    publish(topics, table, 10, rows_of(*range(20)))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
        topics.delete_topic(table.topic)
        seen = view.wait_for_state("public.items", "suspect")
        assert "does not exist" in seen.table.reason
        assert len(seen.rows) == 20
        publish(topics, other, 20, rows_of(2))
        view.wait_for_cut(21)
        assert state_of(view.reader, "public.other") == "exact"
        topics.create_topic(table.topic)
        publish(topics, table, 30, rows_of(*range(10, 20), v=1))
        view.wait_for_state("public.items", "exact")
        assert_holds(view, topics, table)
        assert_holds(view, topics, other)


def test_rows_of_a_topic_that_is_gone_do_not_pass_for_those_of_the_views_lsn(
    topics: TopicWriter, contents: Contents
) -> None:
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1))
    publish(topics, other, 10, rows_of(1))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
        asked = TableView(view.reader)
        assert asked.get("public.items", [1]).evidence.lsn == LSN(11)
        topics.delete_topic(table.topic)
        view.wait_for_state("public.items", "suspect")
        publish(topics, other, 20, rows_of(2))
        view.wait_for_cut(21)
        assert asked.get("public.other", [2]).evidence.lsn == LSN(21)
        stale = asked.get("public.items", [1]).evidence
        assert (stale.state, stale.lsn, stale.age_s) == ("suspect", 0, None)
        assert [asked.facts().reached(name) for name in ("public.items", "public.other")] == [0, LSN(21)]


def test_a_table_whose_first_backfill_runs_has_no_rows_that_are_not_there(
    topics: TopicWriter, contents: Contents
) -> None:
    """A key that the backfill has not come to would look like one that the source does not have."""
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, other, 5, rows_of(1))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(6)
        with topics.kafka_transaction():
            topics.define(table)
            topics.backfill(table, 10)
            topics.backfilled(table, {"id": 1, "v": 1}, 10)
            topics.progress(11)
        view.wait_for_cut(11)
        asked = TableView(view.reader)
        assert view.wait_for_state("public.items", "loading").rows
        for ask in (lambda: asked.get("public.items", [2]), lambda: asked.count("public.items")):
            with pytest.raises(NotLoaded, match="is being read for the first time"):
                ask()
        publish(topics, other, 12, rows_of(2))
        view.wait_for_cut(13)  # which is behind the marker that ends what there was
        facts = asked.facts()
        assert all(map(facts.is_read, facts.tables.values())), "the view has read what there was"
        with topics.kafka_transaction():
            topics.backfilled(table, {"id": 2, "v": 1}, 20)
            topics.backfill(table, 20, state="done", whole=True)
            topics.progress(21)
        view.wait_for_state("public.items", "exact")
        assert asked.count("public.items")[0] == 2
        assert asked.get("public.items", [2]).row is not None


def test_a_store_of_another_view_is_refused(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
    config: Any = view_config(topics).model_copy(update={"name": "another"})
    writer = TopicWriter(topics.bootstrap)
    with running(config.model_copy(update={"name": writer.name}), contents) as view:
        error = view.wait_for_error()
    assert isinstance(error, StoreRefused | ReplicaRefused)
    assert f"the store holds view '{topics.name}'" in str(error)


def test_a_view_in_redis(topics: TopicWriter, redis: Redis) -> None:
    table = topics.table("orders", ("region", "id"), region="text", id="int4", v="int4")
    rows = [{"region": region, "id": number, "v": number % 5} for region in ("eu", "us") for number in range(300)]
    publish(topics, table, 10, rows, rows[:20])
    config = view_config(topics, store=redis.url, index={"public.orders": ["v"]})
    stores = ViewStores(config)
    view = View(config, lambda: stores.open(TABLES), stores.open(TABLES, read_only=True))
    for lsn in (11, 21):
        thread = threading.Thread(target=view.run)
        thread.start()
        try:
            view.wait_for_cut(lsn)
            assert len(assert_holds(view, topics, table).rows) == 580
        finally:
            view.stop.set()
            thread.join()
        publish(topics, table, 20, [{**each, "v": 7} for each in rows[100:200]])
        view.stop.clear()
    view.reader.close()


def test_a_record_of_another_system_is_left_out_until_the_bridge_writes_its_key(
    topics: TopicWriter, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view waited for its LSN with all that came behind it."""
    monkeypatch.setattr(foreign, "PATIENCE_S", 0.2)
    items, beside = topics.table("items", id="int4", v="int4"), topics.table("beside", id="int4", v="int4")
    publish(topics, items, 10, rows_of(1, 2, 3))
    publish(topics, beside, 20, rows_of(1))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(21)
        with topics.kafka_transaction():
            topics.upsert(items, {"id": 2, "v": 99}, 1 << 40)
            topics.upsert(items, {"id": 3, "v": 5}, 30)
            topics.progress(31)

        lsns = itertools.count(40, 10)

        def rows() -> dict[int, int]:
            publish(topics, beside, next(lsns), rows_of(1))
            return {row["id"]: row["v"] for row in view.look("public.items").values()}

        wanted = {1: 0, 2: 0, 3: 5}, "loading"
        eventually(lambda: (rows(), state_of(view.reader, "public.items")) == wanted)
        publish(topics, items, 1 << 20, [{"id": 2, "v": 7}])
        view.wait_for_state("public.items", "exact")
        assert_holds(view, topics, items)
