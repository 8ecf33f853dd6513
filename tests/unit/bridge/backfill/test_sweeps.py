"""Ghosts: when a sweep may begin, what it deletes, and what gives it up."""

from __future__ import annotations

from cdc.base.lsn import LSN
from cdc.contract.header import parse_header
from cdc.contract.record import BackfillOptions
from tests.unit.bridge.backfill.stage import HEAP, Ghosts, Stage, key, request, rows, topic_of

SWEEP = BackfillOptions(sweep=True)
TOUCHED = key(5)


def swept(*portions: list[bytes] | None) -> Stage:
    """Everything was read, and a sweep has begun that finds these keys."""
    stage = Stage("t", "u")
    stage.world.sweeps.append(Ghosts(portions))
    stage.ask(request("start", "t", options=SWEEP))
    stage.step()
    stage.look(HEAP)
    stage.step()
    chunk = stage.chunk()
    (touched,) = stage.touched.keys[topic_of("t")]
    touched[TOUCHED] = 60
    stage.bring(chunk, 1)
    stage.look(HEAP)
    return stage


def test_a_sweep_begins_behind_the_end_of_the_wal() -> None:
    """Changes that told too little have to be in the topic, committed, before it is asked where it ends."""
    stage = Stage("t")
    stage.world.wal = LSN(180)
    stage.ask(request("start", "t", options=SWEEP))
    stage.step()
    stage.stream.comes_to(179)
    stage.world.wal = LSN(500)  # it was asked once
    stage.step()
    assert (list(stage.readers.tasks), stage.world.journal) == ([], [])
    assert stage.is_active()
    stage.stream.comes_to(180)
    stage.stream.holds_records = True
    stage.step()
    assert (list(stage.readers.tasks), stage.world.journal) == ([], [])
    stage.stream.holds_records = False
    stage.step()
    assert stage.world.journal == ["commit", ("ends of", topic_of("t"))]
    assert stage.written().below == (3, 4)
    assert len(stage.readers.tasks) == 1


def test_a_sweep_that_was_begun_goes_on_with_its_offsets() -> None:
    stage = swept([key(9)], None)
    before = stage.written()
    again = Stage("t", stored={"public.t": before})
    again.world.wal = LSN(10_000)
    again.step()
    assert again.world.journal == []
    assert again.written().below == (3, 4)


def test_ghosts_get_tombstones() -> None:
    stage = swept([key(8), key(9)], [], None)
    assert stage.world.journal[2:] == ["commit", ("sweep", topic_of("t"), (3, 4))]
    (touched,) = stage.touched.keys[topic_of("t")]
    touched[key(8)] = 70  # it came back
    stage.step(2)
    assert stage.written().state == "running"
    stage.step()
    done = stage.written()
    assert (done.state, done.rows, done.swept, done.seq) == ("done", 1, 1, 2)
    assert stage.keys() == [*rows(1), (key(9), False)]
    header = parse_header(stage.world.records[-1][3])
    assert (header.op, header.lsn, header.seq, header.snap) == ("d", LSN(99), 2, "50:50:")
    assert header.schema == parse_header(stage.world.records[0][3]).schema, "of the definition that rows have now"
    assert not stage.touched.keys


def test_what_was_touched_before_the_sweep_is_no_ghost_by_its_offset() -> None:
    """Keys are noted anew for the sweep: what was written since the beginning lies above the offsets anyway."""
    stage = swept([TOUCHED], None)
    stage.step(2)
    assert stage.keys() == [*rows(1), (TOUCHED, False)]


def test_nothing_else_is_published_during_a_sweep() -> None:
    stage = swept([], [], None)
    stage.ask(request("start", "u"))
    stage.step()
    stage.look(("u", 2, 10))
    assert stage.written("u").leaves == ()  # what the readers bring waits
    stage.step(2)
    assert stage.written("t").state == "done"
    stage.step(2)
    stage.bring(stage.chunk(), 3)
    assert stage.keys("u") == rows(3)


def test_a_sweep_that_is_paused_begins_again() -> None:
    """It looks for keys below the offsets of its beginning: those that have their tombstone are none any more."""
    stage = swept([key(9)], [key(10)])
    first = stage.world.begun[0]
    stage.step()
    stage.ask(request("pause", "t"))
    assert first.is_closed
    assert (stage.written().state, stage.written().swept) == ("paused", 1)
    stage.world.sweeps.append(Ghosts([[key(10)], None]))
    stage.world.journal.clear()
    stage.ask(request("resume", "t"))
    stage.step()
    stage.look(HEAP)  # nothing is left to be read
    stage.look(HEAP)
    stage.step(2)
    assert stage.world.journal == ["commit", ("sweep", topic_of("t"), (3, 4))]
    assert (stage.written().state, stage.written().swept) == ("done", 2)
    assert stage.keys() == [*rows(1), (key(9), False), (key(10), False)]


def test_a_condition_rules_a_sweep_out() -> None:
    stage = Stage("t")
    stage.world.wal = LSN(500)
    stage.ask(request("start", "t", options=BackfillOptions("id > 5", sweep=True)))
    stage.step()
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk(), 6)
    stage.look(HEAP)
    stage.step()
    assert (stage.written().state, stage.written().sweep, stage.world.journal) == ("done", False, [])


def test_many_ghosts_have_ordinals_of_their_own() -> None:
    """(lsn, seq) never falls within a partition, and the next record of the topic follows all of them."""
    stage = swept([key(7), key(8)], [key(9)], None)
    stage.step(3)
    assert [parse_header(header).seq for *_, header in stage.world.records] == [1, 2, 3, 4]
    assert (stage.written().swept, stage.written().seq) == (3, 4)
    assert stage.ordinals[topic_of("t")] == 4


def test_without_an_encoder_tombstones_name_no_definition() -> None:
    stage = Stage("t")
    stage.world.sweeps.append(Ghosts([[key(9)], None]))
    stage.ask(request("start", "t", options=SWEEP))
    stage.step()
    stage.look(HEAP)
    stage.step()
    stage.bring(stage.chunk())
    stage.world.without_encoder.add("t")
    stage.look(HEAP)
    stage.step(2)
    ((_, _, _, header),) = stage.world.records
    assert parse_header(header).schema == "0" * 16
