"""One table's way from being asked for to its end, as the topic and the progress topic show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.base.errors import SourceRefused
from cdc.base.lsn import LSN
from cdc.bridge.backfill.plan import CHUNK_BLOCKS, OPEN
from cdc.bridge.order.demand import Demand
from cdc.contract.backfill import backfill_key
from cdc.contract.header import parse_header
from cdc.contract.record import BackfillOptions, BackfillProgress, LeafProgress
from cdc.contract.snapshot import Snapshot
from tests.support.topic_writer import FIRST_BACKFILL
from tests.unit.bridge.backfill.stage import HEAP, TWO_CHUNKS, Ghosts, Stage, key, request, rows, started, topic_of


def stored(**differently: Any) -> BackfillProgress:
    return replace(FIRST_BACKFILL, **{"table": "public.t", "topic": topic_of("t"), **differently})


def test_from_a_request_to_its_end() -> None:
    stage = Stage("t")
    assert not stage.is_active()
    stage.ask(request("start", "t"))
    assert stage.is_active()
    assert stage.wants_flush()
    assert stage.world.notes == [(b'{"request":"to start"}', None)]
    assert (stage.written().state, stage.written().cause, stage.written().whole) == ("waiting", "request", True)
    stage.step()
    assert stage.written().state == "running"
    stage.look(TWO_CHUNKS, rows=4)
    assert stage.written().leaves == (LeafProgress("public", *TWO_CHUNKS),)
    stage.step()
    first, second = stage.chunk(), stage.chunk()
    assert [(each.piece.blocks, each.chunk.end) for each in (first, second)] == [
        ((0, CHUNK_BLOCKS), CHUNK_BLOCKS),
        ((CHUNK_BLOCKS, OPEN), None),
    ]
    stage.bring(second, 3, 4)
    assert stage.written().leaves[0].done == ((CHUNK_BLOCKS, OPEN),)
    stage.bring(first, 1, is_last=False)
    stage.bring(first, 2)
    assert stage.written().state == "running"
    stage.look(TWO_CHUNKS, rows=4)
    stage.step()
    done = stage.written()
    assert (done.state, done.rows, done.swept, done.seq, done.whole) == ("done", 4, 0, 4, True)
    assert done.leaves[0].done == ((0, OPEN),)
    assert stage.keys() == rows(3, 4, 1, 2)
    headers = [parse_header(header) for *_, header in stage.world.records]
    assert [(each.op, each.lsn, each.seq, each.snap) for each in headers] == [
        ("r", LSN(99), seq, "50:50:") for seq in (1, 2, 3, 4)
    ]
    assert not stage.is_active()
    assert not stage.readers.tasks
    assert not stage.touched.keys


def test_what_is_stored_is_what_was_always_stored() -> None:
    stage = started(options=BackfillOptions("id > 5", 100))
    stage.look(HEAP, rows=7)
    progress = stage.written()
    written_key, value = stage.world.notes[-1]
    assert written_key == backfill_key("public.t") == b'{"backfill":"public.t"}'
    assert value is not None
    assert list(orjson.loads(value).items()) == [
        ("v", 1),
        ("table", "public.t"),
        ("topic", "shop.public.t"),
        ("request", "to start"),
        ("state", "running"),
        ("cause", "request"),
        ("whole", True),
        ("where", "id > 5"),
        ("rate", 100),
        ("sweep", False),
        ("below", []),
        ("leaves", [{"namespace": "public", "name": "t", "filenode": 1, "blocks": 10, "done": []}]),
        ("estimated_rows", 7),
        ("rows", 0),
        ("swept", 0),
        ("seq", 0),
        ("lsn", "0/64"),
        ("started_at", progress.started_at),
        ("updated_at", progress.updated_at),
        ("reason", ""),
    ]


def test_a_portion_waits_until_the_stream_is_where_it_was_read() -> None:
    """What its snapshot saw has to be in the topic first; changes that are only held do not count."""
    stage = started()
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 1, lsn=150)
    stage.stream.complete_lsn = LSN(200)
    stage.stream.holds_records = True
    stage.step(3)
    assert stage.keys() == []
    stage.stream.settled_lsn = LSN(150)
    stage.step()
    assert stage.keys() == rows(1)


def test_a_table_does_not_end_while_a_row_of_it_is_held() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 1)
    stage.stream.holds_records = True
    stage.look(HEAP)
    assert stage.written().state == "running"
    stage.stream.holds_records = False
    stage.step()
    assert stage.written().state == "done"


def test_rows_that_the_stream_touched_meanwhile_are_left_to_it() -> None:
    stage = Stage("t")
    stage.stream.unseen = {41, 42}
    stage.ask(request("start", "t"))
    stage.step()
    stage.look(HEAP)
    stage.step()
    (touched,) = stage.touched.keys[topic_of("t")]
    touched[key(2)] = 60
    chunk = stage.chunk()
    assert chunk.guard == {41, 42}
    stage.bring(chunk, 1, 2, 3)
    assert stage.keys() == rows(1, 3)
    assert stage.written().rows == 2


def test_rows_that_a_truncate_removed_meanwhile_are_left_out() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    stage.touched.emptied(topic_of("t"), 60)
    stage.bring(stage.chunk(), 1, 2)
    assert stage.keys() == []


def test_partitions_that_came_meanwhile_are_read_as_well() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 1)
    stage.look(HEAP, ("u", 2, 5))
    stage.step()
    chunk = stage.chunk()
    assert (chunk.piece.leaf.name, chunk.piece.blocks) == ("u", (0, OPEN))
    stage.bring(chunk, 2)
    assert stage.written().state == "running"
    stage.look(HEAP, ("u", 2, 5))
    stage.step()
    assert (stage.written().state, stage.written().rows) == ("done", 2)


def test_a_heap_that_was_rewritten_is_read_anew() -> None:
    stage = started()
    stage.look(TWO_CHUNKS)
    stage.step()
    first, second = stage.chunk(), stage.chunk()
    stage.bring(first, 1)
    stage.rewritten(second)
    stage.look(("t", 2, 10))
    stage.step()
    chunk = stage.chunk()
    assert (chunk.piece.leaf.filenode, chunk.piece.blocks) == (2, (0, OPEN))
    stage.bring(chunk, 1, 2)
    assert stage.keys() == rows(1, 1, 2)
    assert stage.written().leaves == (LeafProgress("public", "t", 2, 10, ((0, OPEN),)),)


def test_paused_and_resumed() -> None:
    """What was read stays done; what is under way is thrown away, and read again."""
    stage = started()
    stage.look(TWO_CHUNKS)
    stage.step()
    first, second = stage.chunk(), stage.chunk()
    stage.bring(first, 1)
    stage.ask(request("pause", "t"))
    assert stage.wants_flush()
    assert not stage.is_active()
    assert not stage.touched.keys
    assert (stage.written().state, stage.written().rows) == ("paused", 1)
    stage.ask(request("pause", "t"))
    assert not stage.wants_flush()
    stage.ask(request("resume", "t"))
    assert stage.written().state == "waiting"
    stage.bring(second, 2)
    assert stage.keys() == rows(1)
    stage.look(TWO_CHUNKS)
    stage.step()
    again = stage.chunk()
    assert (again.piece.blocks, stage.written().request) == (second.piece.blocks, "to start")
    stage.bring(again, 2)
    stage.look(TWO_CHUNKS)
    stage.step()
    assert (stage.written().state, stage.written().rows, stage.keys()) == ("done", 2, rows(1, 2))


def test_cancelled() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    chunk = stage.chunk()
    stage.bring(chunk, 1, is_last=False)
    stage.ask(request("cancel"))
    assert (stage.written().state, stage.written().rows, stage.written().whole) == ("cancelled", 1, True)
    stage.bring(chunk, 2)
    assert stage.keys() == rows(1)
    stage.ask(request("resume", "t"))  # it is over
    stage.ask(request("cancel", "t"))
    assert not stage.wants_flush()
    assert not stage.is_active()


def test_another_request_takes_its_place() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    chunk = stage.chunk()
    stage.bring(chunk, 1, is_last=False)
    stage.ask(replace(request("start", "t"), request="another"))
    progress = stage.written()
    assert (progress.request, progress.state, progress.rows, progress.leaves) == ("another", "waiting", 0, ())
    assert progress.seq == 1  # (lsn, seq) never falls
    stage.bring(chunk, 2)
    assert stage.keys() == rows(1)


def test_a_table_that_cannot_be_read_fails_alone() -> None:
    stage = started("t", "u")
    stage.look(HEAP)
    stage.look(("u", 2, 10))
    stage.step()
    of_t, of_u = stage.chunk(), stage.chunk()
    stage.fail(of_t, SourceRefused("no right to read it", remedy="try again"))
    told = "no right to read it\n  remedy: try again"
    assert (stage.written("t").state, stage.written("t").reason) == ("failed", told)
    stage.bring(of_u, 1)
    stage.look(("u", 2, 10))
    stage.step()
    assert (stage.written("u").state, stage.written("t").state) == ("done", "failed")
    assert stage.keys("u") == rows(1)


def test_a_table_that_is_gone_fails() -> None:
    stage = started()
    stage.look()
    assert stage.written().state == "failed"
    assert stage.written().reason.startswith("the table is gone\n  remedy: take it out of source.tables")
    assert not stage.touched.keys


def test_a_table_that_was_dropped_while_it_was_read_fails() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    stage.world.infos.clear()
    stage.bring(stage.chunk(), 1)
    progress = stage.written()
    assert (progress.state, progress.whole, progress.reason) == ("failed", False, "the table is not captured any more")
    stage.step()
    assert stage.keys() == []
    assert not stage.is_active()


def test_rows_wait_until_the_stream_comes_to_their_new_key() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    stage.world.without_encoder.add("t")
    stage.bring(stage.chunk(), 1)
    stage.step(2)
    assert (stage.keys(), stage.written().state) == ([], "running")
    stage.world.without_encoder.clear()
    stage.step()
    assert stage.keys() == rows(1)


def test_what_the_bridge_asks_for() -> None:
    stage = Stage("t")
    stage.backfill.demand(Demand("public.t", True, "changes were lost"))
    stage.backfill.demand(Demand("public.nowhere", True, "changes were lost"))
    progress = stage.written()
    assert (progress.cause, progress.whole, progress.sweep, progress.state) == ("gap", False, True, "waiting")
    assert len(stage.world.progress) == 1
    assert progress.request


def test_a_demand_for_a_table_that_is_not_captured_any_more() -> None:
    stage = Stage(stored={"public.t": stored(state="done", whole=True)})
    stage.backfill.demand(Demand("public.t", True, "changes were lost"))
    progress = stage.written()
    assert (progress.state, progress.whole, progress.reason) == ("failed", False, "the table is not captured any more")


def test_what_the_last_session_left_goes_on() -> None:
    """What is done stays done; those that were begun come first, and what is over stays as it is."""
    done = LeafProgress("public", "t", 1, 2 * CHUNK_BLOCKS, ((0, CHUNK_BLOCKS),))
    stage = Stage(
        "v",
        "t",
        "over",
        stored={
            "public.v": stored(table="public.v", topic=topic_of("v"), state="waiting"),
            "public.t": stored(state="running", leaves=(done,), rows=5, seq=5, reason="waited"),
            "public.over": stored(table="public.over", topic=topic_of("over"), state="failed"),
        },
    )
    assert not stage.wants_flush()
    stage.step()
    assert [each.table.name for each in stage.readers.tasks] == ["t", "v"]  # type: ignore[union-attr]  # None would fail the test
    stage.look(TWO_CHUNKS)
    stage.readers.tasks.popleft()
    stage.step()
    assert stage.chunk().piece.blocks == (CHUNK_BLOCKS, OPEN)
    assert (stage.written("t").rows, stage.written("t").reason) == (5, "")


def test_recorded_keys_that_every_snapshot_sees_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.bridge.backfill.table.PRUNE_KEYS", 1)
    stage = started()
    stage.look(("t", 1, 5 * CHUNK_BLOCKS))
    stage.step()
    (touched,) = stage.touched.keys[topic_of("t")]
    touched.update({key(7): 40, key(8): 60, key(9): 45})
    *chunks, last = [stage.chunk() for _ in range(4)]
    for chunk in chunks:
        stage.bring(chunk, snapshot=Snapshot(50, frozenset({45})))
    stage.step()
    assert set(touched) == {key(7), key(8), key(9)}  # of one chunk it is not known which snapshot it was begun behind
    stage.bring(last)
    stage.step()
    assert set(touched) == {key(8), key(9)}


@pytest.mark.parametrize("names", [(), ("t", "foreign")])
def test_tables_that_are_asked_for(names: tuple[str, ...]) -> None:
    """All when none is named; one that is not captured is left out."""
    stage = Stage("t", "u")
    stage.ask(request("start", *names))
    stage.backfill.flush(LSN(100))
    assert {each.table for each in stage.world.progress} == ({"public.t"} if names else {"public.t", "public.u"})


def test_the_end() -> None:
    stage = started(options=BackfillOptions(sweep=True))
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 1)
    sweep = Ghosts([])
    stage.world.sweeps.append(sweep)
    stage.look(HEAP)
    stage.backfill.close()
    assert (stage.readers.is_closed, stage.requests.is_closed, sweep.is_closed) == (True, True, True)


def test_a_backfill_that_waits_for_its_turn_may_be_paused_as_well() -> None:
    stage = Stage("t", stored=None)
    stage.ask(request("start", "t"))
    stage.ask(request("pause", "t"))
    assert stage.written().state == "paused"
    stage.step()
    assert not stage.readers.tasks
