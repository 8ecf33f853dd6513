"""The phases of one table, and what belongs to each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.base.lsn import LSN
from cdc.bridge.backfill.plan import OPEN, Blocks
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.table import Phase, TableBackfill
from cdc.bridge.capture.chunk import ChunkedTable, Heap
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.record import BackfillState
from tests.support.topic_writer import FIRST_BACKFILL
from tests.unit.bridge.backfill.stage import SNAPSHOT, SNAPSHOT_TEXT, Ghosts, Stream, relation, table_info, topic_of

VIEW = ChunkedTable((Heap("public", "t", 1, 10),), 7, relation("t"), SNAPSHOT_TEXT)
STORED = replace(FIRST_BACKFILL, table="public.t", topic=topic_of("t"))


class Table(TableBackfill):
    """Keeps the phases that it was in."""

    def __init__(self, state: BackfillState = "waiting") -> None:
        self.touched = TouchedKeys()
        self.phases: list[Phase] = []
        super().__init__(replace(STORED, state=state), StreamSide(Stream(), self.touched))

    def __setattr__(self, name: str, value: object) -> None:
        if name == "phase":
            assert isinstance(value, Phase)
            self.phases.append(value)
        super().__setattr__(name, value)

    @property
    def is_recording(self) -> bool:
        return topic_of("t") in self.touched.keys

    def read(self) -> None:
        """All that there is to read now."""
        while (piece := self.next_piece(SNAPSHOT)) is not None:
            self.finished(piece)


def is_read(table: Table) -> bool:
    return table.is_read


def test_from_the_first_look_to_the_end() -> None:
    table = Table()
    assert not table.is_recording
    table.begin(table_info("t"), (3, 4))
    assert (table.is_recording, table.progress.state, table.progress.below) == (True, "running", (3, 4))
    table.looked_at(VIEW)
    piece = table.next_piece(None)
    assert piece is not None
    assert piece.blocks == Blocks(0, OPEN)
    assert not is_read(table)
    table.finished(piece)
    assert is_read(table)
    table.look()
    assert table.is_looked_at
    table.looked_at(VIEW)
    ghosts = Ghosts([])
    table.sweep(ghosts)
    table.finish()
    assert table.phases == [
        Phase.WAITING,
        Phase.LOOKING,
        Phase.READING,
        Phase.CONFIRMING,
        Phase.CONFIRMED,
        Phase.SWEEPING,
        Phase.OVER,
    ]
    assert (table.progress.state, table.progress.whole) == ("done", True)
    assert (table.is_recording, ghosts.is_closed) == (False, True)


def test_a_heap_that_was_rewritten_is_looked_at_before_it_is_read() -> None:
    table = Table()
    table.begin(table_info("t"), ())
    table.looked_at(VIEW)
    piece = table.next_piece(None)
    assert piece is not None
    table.give_back(piece)
    table.look()
    assert table.next_piece(None) is None
    table.looked_at(VIEW._replace(heaps=(Heap("public", "t", 2, 10),)))
    table.finished(piece)  # of the heap before: that says nothing of this one
    assert not is_read(table)
    table.read()
    assert is_read(table)
    assert table.phases == [Phase.WAITING, Phase.LOOKING, Phase.READING, Phase.LOOKING, Phase.READING]


def test_partitions_that_were_attached_are_read_before_it_is_confirmed() -> None:
    table = Table()
    table.begin(table_info("t"), ())
    table.looked_at(VIEW)
    table.read()
    table.look()
    more = VIEW._replace(heaps=(*VIEW.heaps, Heap("public", "u", 5, 3)))
    table.looked_at(more)
    table.read()
    table.look()
    table.looked_at(more)
    assert table.phases[2:] == [
        Phase.READING,
        Phase.CONFIRMING,
        Phase.READING,
        Phase.CONFIRMING,
        Phase.CONFIRMED,
    ]


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.LOOKING, Phase.READING, Phase.CONFIRMED, Phase.SWEEPING])
def test_it_may_be_given_up_in_every_phase(phase: Phase) -> None:
    """Nothing is recorded for it any more, and its record stays as it is."""
    table, ghosts = Table(), Ghosts([])
    if phase is not Phase.WAITING:
        table.begin(table_info("t"), ())
    if phase in (Phase.READING, Phase.CONFIRMED, Phase.SWEEPING):
        table.looked_at(VIEW)
    if phase in (Phase.CONFIRMED, Phase.SWEEPING):
        table.read()
        table.look()
        table.looked_at(VIEW)
    if phase is Phase.SWEEPING:
        table.sweep(ghosts)
    assert table.phase is phase
    before = table.progress
    table.give_up()
    assert (table.phase, table.progress, table.is_recording) == (Phase.OVER, before, False)
    assert ghosts.is_closed == (phase is Phase.SWEEPING)
    assert table.next_piece(None) is None


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("waiting", Phase.WAITING),
        ("running", Phase.WAITING),
        ("paused", Phase.OVER),
        ("done", Phase.OVER),
        ("cancelled", Phase.OVER),
        ("failed", Phase.OVER),
    ],
)
def test_what_a_session_finds(state: BackfillState, phase: Phase) -> None:
    assert Table(state).phase is phase


def test_a_failure_says_why() -> None:
    table = Table("running")
    table.begin(table_info("t"), ())
    table.fail("no right to read it")
    stored = table.stored(LSN(7))
    assert (stored.state, stored.reason, stored.lsn, stored.whole) == ("failed", "no right to read it", LSN(7), False)
    assert not table.is_dirty
