"""What a sink holds back although the bridge has gone on."""

from __future__ import annotations

import os
import random

import pytest

from cdc.base.lsn import LSN
from cdc.contract.header import UPDATE, HeaderStamp, header_position
from cdc.contract.ports import StoredRecord
from cdc.contract.record import Progress, SourceIdentity
from cdc.kafka.replay.cut import Cut, CutBuffer, HeldBack
from cdc.kafka.replay.foreign import PATIENCE_S, ForeignWatch

TOPIC, PROGRESS = ("t", 0), ("p", 0)


def record(offset: int, lsn: int, key: bytes = b"k") -> StoredRecord:
    return StoredRecord(*TOPIC, offset, key, b"v", HeaderStamp(LSN(lsn), 7, 1).header(UPDATE, 1, "a" * 16))


def held(offset: int, lsn: int) -> HeldBack:
    return HeldBack(record(offset, lsn), offset, falls=False)


def test_a_record_that_no_progress_comes_to_is_foreign() -> None:
    watch, foreign = ForeignWatch(), held(3, 1000)
    assert watch.look([foreign], LSN(40), 0.0) == []
    assert watch.look([foreign], LSN(40), PATIENCE_S + 1) == [], "the bridge has said nothing since"
    assert watch.look([foreign], LSN(50), PATIENCE_S + 2) == [], "that may have been drawn up before it was sent"
    grown = foreign._replace(last=9)
    assert watch.look([grown], LSN(55), PATIENCE_S + 2) == [foreign], "and not what came after it"
    assert watch.look([], LSN(60), PATIENCE_S + 3) == []


def test_another_record_is_waited_for_anew() -> None:
    """Under load there is always a record that its progress is on the way to."""
    watch = ForeignWatch()
    for number in range(30):
        assert watch.look([held(number, 100 + number)], LSN(90 + number), float(number)) == []


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
    assert [each.record.offset for each in buffer.beyond(LSN(40))] == [2]
    assert buffer.beyond(LSN(1001)) == []


class TestSetApart:
    """What another program wrote, with LSNs that are ahead: the bridge's records behind it are taken all the same."""

    @staticmethod
    def buffer() -> CutBuffer:
        buffer = CutBuffer(1_000, 1 << 20)
        buffer.watch([TOPIC], state=True)
        buffer.watch([PROGRESS], state=False)
        return buffer

    @staticmethod
    def cut_at(buffer: CutBuffer, lsn: int, offset: int, position: int) -> list[int]:
        """Offsets of the records that a cut there takes."""
        buffer.saw(Cut(Progress(LSN(lsn), None, 1, SourceIdentity("1", 1, 1)), offset))
        positions = {TOPIC: position, PROGRESS: offset + 1}
        buffer.fence(positions)
        place = buffer.cut(positions)
        assert place is not None
        return [each.offset for each in buffer.take_cut(place).get("t", [])]

    def apart(self, buffer: CutBuffer) -> None:
        """Offset 1 is foreign, and its topic is behind; it is read again from there."""
        buffer.add([record(0, 10), record(1, 1000), record(2, 20, key=b"other")])
        assert self.cut_at(buffer, 40, 0, 3) == [0]
        (held,) = buffer.beyond(LSN(40))
        assert held.falls, "a later record is missing in this cut"
        buffer.leave(["t"])
        assert [each.offset for each in buffer.set_apart(held, LSN(40))] == [1]
        assert buffer.beyond(LSN(40)) == []
        buffer.add([record(1, 1000), record(2, 20, key=b"other")])

    def test_it_is_not_taken_with_the_older_ones_that_are_read_behind_it(self) -> None:
        """Their order was taken for granted: the middle one of three decided for all of them."""
        buffer = self.buffer()
        buffer.add([record(0, 1000), record(1, 20), record(2, 30)])
        assert self.cut_at(buffer, 40, 0, 3) == []

    def test_what_is_behind_it_is_taken_and_its_topic_stays_behind(self) -> None:
        buffer = self.buffer()
        self.apart(buffer)
        assert self.cut_at(buffer, 50, 1, 3) == [2]
        place = Cut(Progress(LSN(50), None, 1, SourceIdentity("1", 1, 1)), 1)
        assert buffer.joining(place, {TOPIC: 3, PROGRESS: 2}) == frozenset()
        assert buffer.next_offsets({TOPIC: 3})[TOPIC] == 1, "a restart finds it again"

    def test_a_later_record_of_its_key_mends_it(self) -> None:
        buffer = self.buffer()
        self.apart(buffer)
        buffer.add([record(3, 45)])
        assert self.cut_at(buffer, 50, 1, 4) == [2, 3]
        place = Cut(Progress(LSN(50), None, 1, SourceIdentity("1", 1, 1)), 1)
        assert buffer.joining(place, {TOPIC: 4, PROGRESS: 2}) == {"t"}
        assert buffer.next_offsets({TOPIC: 4})[TOPIC] == 4

    def test_it_counts_again_when_the_bridge_comes_so_far(self) -> None:
        buffer = self.buffer()
        self.apart(buffer)
        assert self.cut_at(buffer, 1001, 1, 3) == [1, 2]
        assert buffer.next_offsets({TOPIC: 3})[TOPIC] == 3
        assert not buffer.is_full

    def test_full_memory_does_not_bring_it_back(self) -> None:
        buffer = self.buffer()
        self.apart(buffer)
        assert [each.offset for each in buffer.spill(LSN(40))["t"]] == [2]

    def test_full_memory_does_not_take_it_either_while_nobody_knows_it(self) -> None:
        """It went into the replica as a row, and no cut came any more: none lies beyond it."""
        buffer = self.buffer()
        buffer.add([record(0, 30), record(1, 1000, key=b"other"), record(2, 30, key=b"third")])
        assert [each.offset for each in buffer.spill(LSN(40))["t"]] == [0]
        assert buffer.spill(LSN(40)) == {}
        assert list(buffer.ahead(LSN(40))) == [TOPIC]
        assert self.cut_at(buffer, 40, 0, 3) == []

    def test_all_that_were_held_as_long_as_the_first_go_with_it(self) -> None:
        buffer = self.buffer()
        buffer.add([record(0, 1000), record(1, 30), record(2, 2000)])
        (held,) = buffer.beyond(LSN(40))
        buffer.add([record(3, 3000)])
        assert [each.offset for each in buffer.set_apart(held, LSN(40))] == [0, 2]

    def test_a_later_record_mends_all_of_its_key(self) -> None:
        buffer = self.buffer()
        log = [record(0, 1000), record(1, 2000), record(2, 20, key=b"other")]
        buffer.add(log)
        (held,) = buffer.beyond(LSN(40))
        buffer.leave(["t"])
        assert [each.offset for each in buffer.set_apart(held, LSN(40))] == [0, 1]
        buffer.add([*log, record(3, 45)])
        assert self.cut_at(buffer, 50, 1, 4) == [2, 3]
        assert buffer.next_offsets({TOPIC: 4})[TOPIC] == 4


class Partition:
    """One partition's log, of a bridge and of another system, and a session that reads it with a clock of its own."""

    def __init__(self, rng: random.Random, *, expects_stale: bool) -> None:
        self.rng, self.log, self.lsn, self.now = rng, list[StoredRecord](), 10, 0.0
        self.buffer, self.watch, self.position, self.progress = TestSetApart.buffer(), ForeignWatch(), 0, -1
        self.taken: list[int] = []
        if expects_stale:
            self.buffer.expect_stale()

    def write(self, *, foreign: bool) -> None:
        self.lsn += self.rng.randrange(1, 4)
        lsn = self.lsn + ((1 << 40) + self.rng.randrange(100) if foreign else 0)
        self.log.append(record(len(self.log), lsn, key=b"%d" % self.rng.randrange(6)))

    def step(self) -> None:
        """What a session does between two cuts."""
        end = self.rng.randrange(self.position, len(self.log) + 1)
        self.buffer.add(self.log[self.position : end])
        self.position, self.now, self.progress = end, self.now + self.rng.random() * 8, self.progress + 1
        self.lsn += 1
        self.buffer.saw(Cut(Progress(LSN(self.lsn), None, 1, SourceIdentity("1", 1, 1)), self.progress))
        positions = {TOPIC: self.position, PROGRESS: self.progress + 1}
        self.buffer.fence({TOPIC: len(self.log), PROGRESS: self.progress + 1})
        if place := self.buffer.cut(positions):
            self.taken += [each.offset for each in self.buffer.take_cut(place).get("t", [])]
        for each in self.watch.look(self.buffer.beyond(LSN(self.lsn)), LSN(self.lsn), self.now):
            self.buffer.leave(["t"])
            self.position = self.buffer.set_apart(each, LSN(self.lsn))[0].offset

    def joins(self) -> bool:
        place = Cut(Progress(LSN(self.lsn), None, 1, SourceIdentity("1", 1, 1)), self.progress)
        self.buffer.leave(["t"])
        return self.buffer.joining(place, {TOPIC: self.position, PROGRESS: self.progress + 1}) == {"t"}


@pytest.mark.parametrize("expects_stale", [False, True], ids=["transactional", "idempotent"])
def test_whatever_another_system_writes_all_of_the_bridges_records_are_taken_in_order(expects_stale: bool) -> None:
    seed = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
    rng = random.Random(seed)
    for _ in range(300):
        partition, share = Partition(rng, expects_stale=expects_stale), rng.choice((0.05, 0.3, 0.7))
        for _ in range(rng.randrange(40)):
            partition.write(foreign=rng.random() < share)
            if rng.random() < 0.4:
                partition.step()
        for _ in range(400):
            partition.step()
        log = partition.log
        ours = [each.offset for each in log if header_position(each.header).lsn < 1 << 40]
        assert list(dict.fromkeys(partition.taken)) == ours, f"SEED={seed}"
        last = {each.key: each.offset for each in log}
        assert partition.joins() == (set(last.values()) <= set(ours)), f"SEED={seed}"
