"""Tables that may hold rows which are gone are read into another generation, whatever interrupts that."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from cdc.base.config import Config
from cdc.contract.record import TableSchema
from cdc.sink.apply.topics import RebuildOrder
from cdc.views.store.lmdb_store import LmdbStore
from cdc.views.store.memory import Contents, MemoryStore
from cdc.views.store.open import open_store
from cdc.views.store.port import Store
from cdc.views.table.feed_facts import FEED, cut_item, read_feed
from tests.integration.views.feed.conftest import assert_holds, publish, rows_of, running, view_config
from tests.support.other_topics import CLEANED_SOON, lose_tombstones
from tests.support.reading import fold_topic
from tests.support.topic_settings import delete_records, set_topic
from tests.support.topic_writer import TopicWriter
from tests.support.views import look
from tests.support.waiting import eventually

VIEW = ("view.after_commit:2", "view.before_commit:2")

_FEED = """
import sys, threading
from cdc.base import crashpoints
from cdc.sink.apply import session as mirror_session
from cdc.base.config import Config
from cdc.views.feed.run import run_feeds
from cdc.kafka.replay import cut
if sys.argv[2]:
    crashpoints.arm(sys.argv[2])
mirror_session.MAX_RECORDS, mirror_session.RECORDS_PER_POLL, cut.NEAR = 100, 40, 50
run_feeds(Config.model_validate_json(sys.argv[1]), threading.Event())
"""


Opens = Callable[[], Store]


@pytest.fixture(params=["memory", "redis"])
def opens(request: pytest.FixtureRequest, contents: Contents) -> Opens:
    """Opens the store that the feeds of a test share."""
    if request.param == "memory":
        return partial(MemoryStore, contents)
    return partial(open_store, f"{request.getfixturevalue('redis').url}?prefix={uuid.uuid4().hex}")


def was_away(opens: Opens, seconds: float) -> None:
    """As if the feed had been away for longer than it was."""
    with closing(opens()) as store:
        assert store.lock()
        cut = store.read(read_feed).cut
        assert cut is not None
        transaction = store.begin()
        transaction.put(FEED, [cut_item(replace(cut, caught_up_at=cut.caught_up_at - seconds))])
        transaction.commit()


def keep_writing(topics: TopicWriter, table: TableSchema) -> Callable[[int], None]:
    """Rows of other keys."""
    return lambda lsn: publish(topics, table, lsn, rows_of(*range(1000, 1010), v=lsn))


def test_zombies_end_with_the_generation_that_held_them(topics: TopicWriter, opens: Opens) -> None:
    """Rows are deleted while nobody reads, and the cleaner removes even the tombstones."""
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    for name, value in CLEANED_SOON.items():
        set_topic(topics.bootstrap, table.topic, name, value)
    publish(topics, other, 5, rows_of(1))
    publish(topics, table, 10, rows_of(*range(50)))
    config = view_config(topics, index={"public.items": ["v"]})
    with running(config, opens) as view:
        view.wait_for_cut(11)
    publish(topics, table, 20, [], rows_of(*range(25)))
    last = lose_tombstones(topics, table.topic, keep_writing(topics, table), 30)
    was_away(opens, 3_600)
    with running(config, opens) as view:
        seen = view.look("public.items")
        assert len(seen.rows) == 50, "until the new generation is whole"
        view.wait_for_cut(last + 1)
        view.wait_for_state("public.items", "exact")
        seen = assert_holds(view, topics, table)
        assert len(seen.rows) == 35
        assert seen.table.generation == 2
        assert assert_holds(view, topics, other).table.generation == 1, "an hour is not too long for this one"


def test_without_the_rule_there_would_be_zombies(topics: TopicWriter, contents: Contents) -> None:
    """The test above finds what it is there to find."""
    table = topics.table("items", id="int4", v="int4")
    for name, value in CLEANED_SOON.items():
        set_topic(topics.bootstrap, table.topic, name, value)
    publish(topics, table, 10, rows_of(1, 2))
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
    publish(topics, table, 20, [], rows_of(1))
    last = lose_tombstones(topics, table.topic, keep_writing(topics, table), 30)
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(last + 1)
        assert b'{"id":1}' in view.look("public.items").rows


def test_a_generation_whose_filling_is_killed_goes_on(topics: TopicWriter, tmp_path: Path) -> None:
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(1500)))
    publish(topics, other, 20, rows_of(0))
    config = view_config(topics, store=str(tmp_path), index={"public.items": ["v"]})
    feed(config, topics, table, tmp_path)
    publish(topics, table, 30, [], rows_of(*range(500)))
    delete_records(topics.bootstrap, table.topic)
    publish(topics, table, 40, rows_of(*range(500, 1500), v=1))
    for number, place in enumerate(VIEW, 5):
        publish(topics, other, 10 * number, rows_of(number))
        assert start(config, place).wait(60) == -signal.SIGKILL
        with closing(LmdbStore(tmp_path / "tables", read_only=True)) as store:
            seen = look(store, "public.items")
            assert seen is not None
            assert (seen.table.state, seen.table.generation, len(seen.rows)) == ("suspect", 1, 1500)
            assert 0 < store.read(lambda snapshot: snapshot.count("rows/1/2")) < 1000
    feed(config, topics, table, tmp_path)
    with closing(LmdbStore(tmp_path / "tables", read_only=True)) as store:
        seen = look(store, "public.items")
        assert seen is not None
        assert (seen.table.generation, seen.table.filling) == (2, 0), "it was filled once"


def start(config: Config, crashpoint: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _FEED, config.model_dump_json(), crashpoint])


def feed(config: Config, topics: TopicWriter, table: TableSchema, folder: Path) -> None:
    """Run the feed until the table is the fold of its topic."""
    wanted = {key: each.value for key, each in fold_topic(topics.options, table.topic).items()}
    process = start(config)

    def is_whole() -> bool:
        assert process.poll() is None
        with closing(LmdbStore(folder / "tables", read_only=True)) as store:
            seen = look(store, "public.items")
        return (
            seen is not None
            and seen.table.state == "exact"
            and {key: row.row for key, row in seen.rows.items()} == wanted
        )

    try:
        eventually(is_whole, 60)
    finally:
        process.kill()
        process.wait()


def test_waiting_readers_are_told_how_far_it_is(topics: TopicWriter, contents: Contents) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(100)))
    before = time.time()
    with running(view_config(topics), contents) as view:
        view.wait_for_cut(11)
        seen = view.look("public.items")
        assert seen.facts.view is not None
        assert seen.facts.view.rows == 100
        assert before <= seen.facts.view.began_at <= time.time()
        assert seen.facts.view.targets == {}, "it is there"


def test_a_view_whose_topic_lacks_rows(topics: TopicWriter) -> None:
    """It answers, and says that rows are missing; a generation that is read beside it takes over all the same."""
    items, contents = topics.table("items", id="int4", v="int4"), Contents()
    with topics.kafka_transaction():
        topics.define(items)
        topics.upsert(items, {"id": 1, "v": 0}, 10, 1)
        topics.delete(items, {"id": 2}, 10, 2)
        topics.progress(11, items=1)
    with running(view_config(topics), contents) as view:
        seen = view.wait_for_state("public.items", "degraded")
        assert "in quarantine" in seen.table.reason
        assert (len(seen.rows), seen.table.is_shown, seen.table.is_current) == (1, True, True)
    with running(view_config(topics), contents, RebuildOrder(everything=True)) as view:
        eventually(lambda: view.look("public.items").table.generation == 2, 30)
        assert view.wait_for_state("public.items", "degraded").table.filling == 0
        with topics.kafka_transaction():
            topics.upsert(items, {"id": 2, "v": 0}, 20, 1)
            topics.progress(21)
        assert len(view.wait_for_state("public.items", "exact").rows) == 2
