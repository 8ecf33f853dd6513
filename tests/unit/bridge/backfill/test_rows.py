"""Encoders of chunks: made once for each, and never used for longer than what they know is true."""

from __future__ import annotations

from cdc.bridge.backfill.plan import CHUNK_BLOCKS
from cdc.bridge.order.demand import Demand
from cdc.contract.header import parse_header
from tests.unit.bridge.backfill.stage import HEAP, TWO_CHUNKS, Stage, rows, started, table_info, topic_of


def test_portions_of_two_readers_alternate_and_each_chunk_asks_the_catalog_once() -> None:
    stage = started()
    stage.look(TWO_CHUNKS)
    stage.step()
    first, second = stage.chunk(), stage.chunk()
    for i in range(1, 9):
        stage.bring(first, 2 * i, is_last=i == 8)
        stage.bring(second, 2 * i + 1, is_last=i == 8)
    assert len(stage.keys()) == 16
    assert stage.world.encoded == [stage.relations[first], stage.relations[second]]


def test_a_table_that_begins_anew_twice_at_one_position_goes_on_counting() -> None:
    """The second tombstones came at the position of the rows before them, with a smaller ordinal: it went back."""
    stage = Stage("t")
    topic, demand = topic_of("t"), Demand("public.t", False, "another table has taken this name")
    assert stage.backfill.begin_anew(demand, topic) == 1
    assert stage.written().seq == 1
    stage.step()
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 1, 2)
    assert [parse_header(header).seq for *_, header in stage.world.records] == [2, 3]
    assert stage.backfill.begin_anew(demand, topic) == 4
    assert stage.written().seq == 4, "also after a restart, rows follow the tombstones"


def test_a_table_that_the_stream_described_anew_is_asked_for_again() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    chunk = stage.chunk()
    stage.bring(chunk, 1, is_last=False)
    stage.bring(chunk, 2, is_last=False)
    assert len(stage.world.encoded) == 1
    stage.world.infos["t"] = table_info("t")
    stage.bring(chunk, 3, is_last=False)
    assert len(stage.world.encoded) == 2
    stage.world.without_encoder.add("t")
    stage.bring(chunk, 4, is_last=False)
    assert stage.keys() == rows(1, 2, 3, 4), "the same chunk, and nothing new was said of its table"
    stage.world.infos["t"] = table_info("t")
    stage.bring(chunk, 5)
    assert stage.keys() == rows(1, 2, 3, 4), "the stream has yet to come to its new key"
    stage.world.without_encoder.clear()
    stage.step()
    assert stage.keys() == rows(1, 2, 3, 4, 5)


def test_rows_of_a_table_that_is_left_out_meanwhile_are_dropped() -> None:
    stage = started()
    stage.look(HEAP)
    stage.step()
    chunk = stage.chunk()
    stage.bring(chunk, 1, is_last=False)
    stage.world.infos.clear()
    stage.bring(chunk, 2)
    assert stage.keys() == rows(1)
    assert stage.written().state == "failed"


def test_a_long_session_remembers_few_encoders() -> None:
    stage = started()
    stage.look(("t", 1, 100 * CHUNK_BLOCKS))
    stage.step()
    slow = stage.chunk()
    stage.bring(slow, 0, is_last=False)
    for i in range(1, 100):
        stage.step()
        stage.bring(stage.chunk(), i)
    stage.bring(slow, 100)
    assert stage.keys() == rows(*range(101))
    assert len(stage.world.encoded) == 101, "the slow chunk's was forgotten"
