"""Who comes next: tables with a rate wait aside, one after another; records are written now or soon."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cdc.bridge.backfill.plan import CHUNK_BLOCKS
from cdc.bridge.backfill.tasks import ChunkTask, ViewTask
from cdc.bridge.capture.chunk import Chunk
from cdc.contract.record import BackfillOptions
from tests.support.topic_writer import FIRST_BACKFILL
from tests.unit.bridge.backfill.stage import HEAP, TWO_CHUNKS, Clock, Stage, request, rows, started, topic_of

SLOW = BackfillOptions(rate=2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_table_that_is_ahead_of_its_rate_waits_aside_and_not_before_the_others(clock: Clock) -> None:
    stage = Stage("slow", "quick")
    stage.ask(request("start", "slow", options=SLOW))
    stage.ask(request("start", "quick"))
    stage.step()
    stage.look(("slow", 1, 10), rows=10)
    stage.look(("quick", 2, 10))
    stage.step()
    chunks = {each.chunk.table.name: each for each in stage.readers.tasks if isinstance(each, ChunkTask)}
    stage.bring(chunks["slow"], 1, 2, 3, 4, is_last=False)
    stage.bring(chunks["slow"], 5, is_last=False)
    stage.bring(chunks["slow"], 6, is_last=False)
    stage.bring(chunks["quick"], 7)
    assert (stage.keys("slow"), stage.keys("quick")) == (rows(1, 2, 3, 4), rows(7))
    clock.now_s += 2.1
    stage.step(2)
    assert stage.keys("slow") == rows(1, 2, 3, 4, 5)
    clock.now_s += 0.5
    stage.step(2)
    assert stage.keys("slow") == rows(1, 2, 3, 4, 5, 6)


def test_chunks_of_a_table_with_a_rate_are_read_in_about_a_second(clock: Clock) -> None:
    stage = started("t", options=BackfillOptions(rate=40))
    stage.look(("t", 1, 1_000), rows=10_000)
    stage.step()
    chunk = stage.chunk()
    assert (chunk.piece.blocks, chunk.portion_rows) == ((0, 4), 8)


def test_tables_with_a_rate_come_one_after_another(clock: Clock) -> None:
    stage = started("a", "b", "c", options=SLOW)
    assert [stage.written(each).state for each in "abc"] == ["running", "waiting", "waiting"]
    stage.ask(request("start", "c"))
    stage.step()
    assert [stage.written(each).state for each in "abc"] == ["running", "waiting", "running"]
    stage.ask(request("cancel", "a"))
    stage.step()
    assert [stage.written(each).state for each in "abc"] == ["cancelled", "running", "running"]


def test_readers_are_kept_busy_and_no_more_than_that() -> None:
    """Each has a task and the next: of the tables that were begun first, chunks before another table."""
    stage = started("a", "b", "c", "d", "e")
    assert [each.table.name for each in stage.readers.tasks] == ["a", "b", "c", "d"]  # type: ignore[union-attr]  # None would fail the test
    stage.look(("a", 1, 3 * CHUNK_BLOCKS))
    stage.step()
    assert len(stage.readers.tasks) == 4
    assert isinstance(stage.readers.tasks[-1], ChunkTask)
    assert stage.readers.tasks[-1].chunk.table.name == "a"
    assert stage.written("e").state == "waiting"


def test_what_a_portion_waits_for_is_asked_for(clock: Clock) -> None:
    """A source at rest keeps WAL to itself for a while."""
    stage = started("t")
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 1, lsn=150)
    stage.backfill.attend()
    assert stage.world.journal == []
    clock.now_s += 0.25
    stage.backfill.attend()
    stage.backfill.attend()
    assert stage.world.journal == ["flush WAL"]
    clock.now_s += 0.25
    stage.stream.comes_to(150)
    stage.step()
    stage.backfill.attend()
    assert stage.world.journal == ["flush WAL"]


def test_why_nothing_comes_is_on_record(clock: Clock) -> None:
    stage = started("t")
    stage.readers.waits_for = "a standby"
    stage.backfill.attend()
    assert (stage.written().state, stage.written().reason) == ("running", "a standby")
    stage.readers.locked["public.t"], stage.readers.locked["public.other"] = "a lock", "another lock"
    stage.backfill.attend()
    assert stage.written().reason == "a lock"
    stage.readers.waits_for = ""
    del stage.readers.locked["public.t"]
    stage.backfill.attend()
    assert stage.written().reason == ""


def test_progress_is_written_once_a_second_and_an_end_at_once(clock: Clock) -> None:
    stage = started("t")
    stage.look(TWO_CHUNKS)
    stage.step()
    stage.written()
    first, second = stage.chunk(), stage.chunk()
    stage.bring(first, 1)
    assert not stage.wants_flush()
    clock.now_s += 1.1
    assert stage.wants_flush()
    stage.written()
    assert not stage.wants_flush()
    stage.bring(second, 2)
    stage.look(TWO_CHUNKS)
    stage.step()
    assert stage.wants_flush()
    assert stage.written().state == "done"
    assert not stage.wants_flush()


def test_a_table_that_somebody_locks_keeps_no_reader_from_the_others() -> None:
    stage = started("a", "b", "c", "d", "e")
    assert [each.table.name for each in stage.readers.tasks] == ["a", "b", "c", "d"]  # type: ignore[union-attr]  # None would fail the test
    stage.look(("a", 1, 9 * CHUNK_BLOCKS))
    stage.step()
    stage.readers.locked["public.a"] = "a lock"
    stage.step()
    chunks = [each for each in stage.readers.tasks if isinstance(each, ChunkTask)]
    assert [each.chunk.table.name for each in chunks] == ["a"], "which were asked for before"
    assert stage.readers.tasks[-1].table.name == "e"  # type: ignore[union-attr]  # None would fail the test
    del stage.readers.locked["public.a"]
    stage.bring(stage.readers.tasks[3], 1)  # type: ignore[arg-type]  # None would fail the test
    assert len(stage.readers.tasks) == 5, "four and what was brought"


def test_what_was_asked_for_is_written_at_once_though_it_was_begun(clock: Clock) -> None:
    """Or a Kafka commit of the stream alone would pass over it."""
    stage = started("t")
    assert stage.written().state == "running"
    stage.ask(request("start", "t"))
    stage.step()
    assert stage.wants_flush()


@pytest.mark.parametrize(
    ("rate", "rows_there", "blocks"),
    [(2, 10 * CHUNK_BLOCKS * 10, 1), (20, 10 * CHUNK_BLOCKS * 10, 2), (20, 0, 20), (3, 1, 3), (10**9, 0, CHUNK_BLOCKS)],
)
def test_a_chunk_with_a_rate_has_as_many_blocks_as_a_second_publishes(
    clock: Clock, rate: int, rows_there: int, blocks: int
) -> None:
    stage = started(options=BackfillOptions(rate=rate))
    stage.look(("t", 1, 10 * CHUNK_BLOCKS), rows=rows_there)
    stage.step()
    assert (stage.chunk().chunk.start, stage.chunk().chunk.start) == (0, blocks)


def test_a_reader_is_asked_for_these_blocks_of_this_heap_and_these_rows() -> None:
    stage = started(options=BackfillOptions("id > 5"))
    stage.stream.unseen.add(77)
    look = stage.readers.tasks[0]
    assert isinstance(look, ViewTask)
    assert look.where == "id > 5"
    stage.look(("partition", 1, 2 * CHUNK_BLOCKS))
    stage.step()
    table = stage.world.infos["t"]
    assert [stage.chunk().chunk, stage.chunk().chunk] == [
        Chunk(table, "public", "partition", 0, CHUNK_BLOCKS, "id > 5"),
        Chunk(table, "public", "partition", CHUNK_BLOCKS, None, "id > 5"),
    ]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_table_that_is_published_again_waits_for_the_sink(is_whole: bool) -> None:
    left = replace(FIRST_BACKFILL, table="public.t", topic=topic_of("t"), state="done", whole=is_whole)
    stage = Stage("t", stored={"public.t": left})
    stage.ask(request("start", "t"))
    stage.step()
    stage.look(("t", 1, 10))
    stage.step()
    chunk = stage.chunk()
    stage.world.sink_is_overtaken = True
    stage.bring(chunk, 1, 2)
    stage.step(3)
    assert stage.keys("t") == ([] if is_whole else rows(1, 2))
    stage.world.sink_is_overtaken = False
    stage.step(3)
    assert stage.keys("t") == rows(1, 2)
    assert stage.world.rows_for_sink == 2
