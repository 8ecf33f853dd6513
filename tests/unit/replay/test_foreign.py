"""What a sink holds back although the bridge has gone on."""

from __future__ import annotations

from cdc.contract.header import UPDATE, HeaderStamp
from cdc.lsn import LSN
from cdc.ports import StoredRecord
from cdc.record import Progress, SourceIdentity
from cdc.replay.cut import Cut, CutBuffer
from cdc.replay.foreign import PATIENCE_S, ForeignWatch

TOPIC, PROGRESS = ("t", 0), ("p", 0)


def record(offset: int, lsn: int) -> StoredRecord:
    return StoredRecord(*TOPIC, offset, b"k", b"v", HeaderStamp(LSN(lsn), 7, 1).header(UPDATE, 1, "a" * 16))


def test_a_record_that_no_progress_comes_to_is_named_once_and_its_topic_as_long_as_it_is_held() -> None:
    watch, foreign = ForeignWatch(), record(3, 1000)
    assert watch.look([foreign], LSN(40), 0.0) == []
    assert watch.look([foreign], LSN(40), PATIENCE_S + 1) == [], "the bridge has said nothing since"
    assert watch.topics == frozenset()
    assert watch.look([foreign], LSN(50), PATIENCE_S + 2) == [], "that may have been drawn up before it was sent"
    assert watch.look([foreign], LSN(55), PATIENCE_S + 2) == [foreign]
    assert watch.look([foreign], LSN(60), PATIENCE_S + 3) == []
    assert watch.topics == {"t"}
    assert watch.look([], LSN(1001), PATIENCE_S + 4) == []
    assert watch.topics == frozenset()


def test_another_record_is_waited_for_anew() -> None:
    """Under load there is always a record that its progress is on the way to."""
    watch = ForeignWatch()
    for number in range(30):
        assert watch.look([record(number, 100 + number)], LSN(90 + number), float(number)) == []
    assert watch.topics == frozenset()


def test_the_buffer_tells_what_it_holds_back_beyond_the_progress() -> None:
    buffer = CutBuffer(1_000, 1 << 20)
    buffer.watch([TOPIC], state=True)
    buffer.watch([PROGRESS], state=False)
    buffer.add([record(0, 10), record(1, 20), record(2, 1000)])
    buffer.saw(Cut(Progress(LSN(40), None, 1, SourceIdentity("1", 1, 1)), 0))
    positions = {TOPIC: 3, PROGRESS: 1}
    buffer.fence(positions)
    place = buffer.cut(positions)
    assert place is not None
    buffer.take_cut(place)
    assert [each.offset for each in buffer.beyond(LSN(40))] == [2]
    assert buffer.beyond(LSN(1001)) == []
