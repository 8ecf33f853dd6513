"""The cut at its bounds: one record, one byte, one offset or one LSN more or less makes the difference."""

from __future__ import annotations

import pytest

from cdc.base.lsn import LSN
from cdc.contract.header import HeaderStamp
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import Progress, SourceIdentity
from cdc.kafka.replay.cut import MAX_SEEN, NEAR, Cut, CutBuffer

A, B, FAR, FAR_TOO, SCHEMAS = ("t", 0), ("t", 1), ("far", 0), ("far", 1), ("schemas", 0)
UNREADABLE = b"x"


def record(partition: Partition, offset: int, lsn: int, *, seq: int = 1, key: bytes = b"") -> StoredRecord:
    header = HeaderStamp(LSN(lsn), 1, 0).header("u", seq, "f" * 16)
    return StoredRecord(*partition, offset, key or b"%d" % offset, b"{}", header)


def place(lsn: int, offset: int | None = None) -> Cut:
    return Cut(Progress(LSN(lsn), None, 0, SourceIdentity("1", 1, 1)), lsn if offset is None else offset)


def buffer_of(*partitions: Partition, records: int = 1_000, size: int = 1 << 30, floor: int = 0) -> CutBuffer:
    buffer = CutBuffer(records, size, LSN(floor))
    buffer.watch([SCHEMAS], state=False)
    buffer.watch(partitions, state=True)
    return buffer


def offsets(taken: dict[str, list[StoredRecord]]) -> list[int]:
    return [each.offset for records in taken.values() for each in records]


def is_full(buffer: CutBuffer) -> bool:
    """A property that changes, which mypy takes for one that does not."""
    return buffer.is_full


def knows_next(buffer: CutBuffer) -> bool:
    """For the same reason."""
    return buffer.knows_next


class TestMemory:
    def test_so_many_records(self) -> None:
        buffer = buffer_of(A, records=3)
        buffer.add([record(A, 0, 10), record(A, 1, 20)])
        assert not is_full(buffer)
        buffer.add([record(A, 2, 30)])
        assert is_full(buffer)
        buffer.take(LSN(11))
        assert not is_full(buffer)

    def test_so_many_bytes(self) -> None:
        one = record(A, 0, 10, key=b"k" * 1_000)
        # Key, value, header, and what an object needs: see _RECORD_BYTES
        size = len(one.key or b"") + len(one.value or b"") + len(one.header) + 400
        buffer = buffer_of(A, size=2 * size)
        buffer.add([one])
        assert not is_full(buffer)
        buffer.add([one._replace(offset=1)])
        assert is_full(buffer)
        buffer.take(LSN(11))
        buffer.add([one._replace(offset=2)])
        assert not is_full(buffer), "what was taken does not count any more"
        buffer.add([one._replace(offset=3, key=b"k" * 999)])
        assert not is_full(buffer), "a byte is left"

    def test_what_was_set_apart_does_not_count(self) -> None:
        buffer = buffer_of(A, records=4, size=1 << 20)
        buffer.add([record(A, 0, 1_000), record(A, 1, 20)])
        (held,) = buffer.beyond(LSN(40))
        buffer.set_apart(held, LSN(40))
        buffer.add([record(A, number, 20) for number in (1, 2, 3)])
        assert not is_full(buffer)
        buffer.add([record(A, 4, 20)])
        assert is_full(buffer)

    def test_bytes_of_what_was_set_apart_do_not_count(self) -> None:
        buffer = buffer_of(A, size=10_000)
        buffer.add([record(A, 0, 1_000, key=b"k" * 6_000)])
        (held,) = buffer.beyond(LSN(40))
        buffer.set_apart(held, LSN(40))
        buffer.add([record(A, 1, 20, key=b"k" * 6_000)])
        assert not is_full(buffer)
        buffer.add([record(A, 2, 20, key=b"k" * 6_000)])
        assert is_full(buffer)

    @pytest.mark.parametrize("count", [MAX_SEEN, MAX_SEEN + 1])
    def test_the_newest_place_is_never_forgotten(self, count: int) -> None:
        buffer = buffer_of(A)
        for lsn in range(1, count + 1):
            buffer.saw(place(lsn))
        positions = {A: 0, SCHEMAS: 0}
        buffer.fence(positions)
        assert buffer.cut(positions) == place(count)

    def test_places_between_are_forgotten_only_when_there_are_too_many(self) -> None:
        buffer = buffer_of(A)
        for lsn in range(1, MAX_SEEN + 1):
            buffer.saw(place(lsn))
        buffer.fence({A: 9, SCHEMAS: 0})
        buffer.add([record(A, 0, MAX_SEEN - 1)])
        assert buffer.cut({A: 1, SCHEMAS: 0}) == place(MAX_SEEN - 1)


class TestStaleRecords:
    def test_one_without_a_readable_header_is_where_its_predecessor_is(self) -> None:
        buffer = buffer_of(A)
        buffer.expect_stale()
        buffer.add([record(A, 0, 10), record(A, 1, 1)._replace(header=UNREADABLE)])
        assert offsets(buffer.take(LSN(11))) == [0, 1]

    def test_what_goes_back_is_told(self) -> None:
        buffer = buffer_of(A)
        buffer.expect_stale()
        buffer.add([record(A, 0, 30), record(A, 1, 20)])
        assert [each.falls for each in buffer.beyond(LSN(30))] == [True]

    def test_the_first_position_after_the_floor_is_new(self) -> None:
        buffer = buffer_of(A, floor=15)
        buffer.expect_stale()
        buffer.add([record(A, 0, 14, seq=0)])
        assert offsets(buffer.take(LSN(100))) == [0]

    def test_falling_is_over_once_what_falls_is_taken(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 30), record(A, 1, 20), record(A, 2, 30), record(A, 3, 40)])
        assert offsets(buffer.take(LSN(31))) == [0, 1, 2]
        assert [each.falls for each in buffer.beyond(LSN(40))] == [False]

    def test_falling_goes_on_while_what_falls_waits(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 10), record(A, 1, 30), record(A, 2, 20)])
        buffer.take(LSN(11))
        assert [each.falls for each in buffer.beyond(LSN(30))] == [True]

    def test_an_unreadable_header_hides_no_fall_after_it(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 30), record(A, 1, 1)._replace(header=UNREADABLE), record(A, 2, 20)])
        assert [each.falls for each in buffer.beyond(LSN(30))] == [True]

    def test_equal_positions_do_not_fall(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 30), record(A, 1, 30)])
        assert [each.falls for each in buffer.beyond(LSN(30))] == [False]

    def test_the_bound_is_exclusive_where_they_fall(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 20), record(A, 1, 30), record(A, 2, 20)])
        assert offsets(buffer.take(LSN(30))) == [0], "the one at the bound hides the one after it"


class TestSetApart:
    def apart(self, lsn: int = 1_000) -> CutBuffer:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, lsn, key=b"k"), record(A, 1, 20)])
        (held,) = buffer.beyond(LSN(lsn))
        assert [each.offset for each in buffer.set_apart(held, LSN(lsn))] == [0]
        return buffer

    def test_it_is_due_once_the_progress_is_past_it(self) -> None:
        buffer = self.apart()
        assert offsets(buffer.take(LSN(40), LSN(1_000))) == []
        assert offsets(buffer.take(LSN(40), LSN(1_001))) == [0]

    def test_without_a_progress_of_its_own_the_bound_counts(self) -> None:
        assert offsets(self.apart().take(LSN(1_001))) == [0]
        assert offsets(self.apart().take(LSN(1_000))) == []

    def test_a_spill_does_not_take_it(self) -> None:
        assert offsets(self.apart().spill(LSN(2_000))) == []

    def test_what_is_read_again_does_not_fall(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 1_000), record(A, 1, 20)])
        (held,) = buffer.beyond(LSN(40))
        assert held.falls
        buffer.set_apart(held, LSN(40))
        buffer.add([record(A, 0, 1_000), record(A, 1, 50)])
        assert [(each.record.offset, each.falls) for each in buffer.beyond(LSN(40))] == [(1, False)]

    def test_one_that_nobody_can_read_goes_with_the_last_that_can_be_read(self) -> None:
        buffer = buffer_of(A)
        strays = [record(A, number, 1)._replace(header=UNREADABLE) for number in (1, 2)]
        buffer.add([record(A, 0, 10), *strays, record(A, 3, 30)])
        assert offsets(buffer.take(LSN(11))) == [0, 1, 2]

    def test_one_that_nobody_can_read_waits_with_its_predecessor(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 10), record(A, 1, 1)._replace(header=UNREADABLE), record(A, 2, 30)])
        assert offsets(buffer.take(LSN(10))) == []

    def test_one_that_was_apart_was_not_among_those_that_wait(self) -> None:
        buffer = buffer_of(A, records=1)
        buffer.add([record(A, 0, 1_000)])
        (held,) = buffer.beyond(LSN(40))
        buffer.set_apart(held, LSN(40))
        assert offsets(buffer.take(LSN(1_001))) == [0]
        buffer.add([record(A, 1, 1_001)])
        assert is_full(buffer)


class TestFence:
    def test_a_spill_up_to_the_fenced_place_does_not_spend_the_fence(self) -> None:
        buffer = buffer_of(A, records=1)
        positions = {A: 1, SCHEMAS: 0}
        buffer.saw(place(20))
        buffer.fence({A: 5, SCHEMAS: 0})
        buffer.add([record(A, 0, 10)])
        buffer.spill(LSN(20))
        buffer.saw(place(30))
        assert not buffer.wants_fence(positions), "a cut at 20 is still possible"

    def test_a_forgotten_fence_is_asked_for_again(self) -> None:
        buffer = buffer_of(A)
        positions = {A: 0, SCHEMAS: 0}
        buffer.saw(place(20))
        buffer.fence({A: 0, SCHEMAS: 0})
        assert not buffer.wants_fence(positions)
        buffer.forget_fence()
        assert buffer.wants_fence(positions)
        assert buffer.cut(positions) is None

    def test_before_the_floor_there_is_no_place(self) -> None:
        buffer = buffer_of(A, floor=20)
        buffer.saw(place(19))
        assert not knows_next(buffer)
        buffer.saw(place(30, 1))
        buffer.saw(place(25, 2))
        buffer.fence({A: 0, SCHEMAS: 0})
        assert buffer.cut({A: 0, SCHEMAS: 0}) == place(30, 1)

    def test_the_place_after_the_last_cut_is_next(self) -> None:
        buffer = buffer_of(A)
        positions = {A: 0, SCHEMAS: 0}
        buffer.saw(place(20, 0))
        buffer.fence(positions)
        assert buffer.cut(positions) == place(20, 0)
        buffer.take_cut(place(20, 0))
        assert not knows_next(buffer)
        buffer.saw(place(20, 1))
        assert knows_next(buffer)
        assert not knows_next(buffer_of(A))

    def test_a_topic_outside_is_waited_for_from_so_near(self) -> None:
        for distance, waits in ((NEAR, True), (NEAR + 1, False)):
            buffer = buffer_of(A)
            buffer.watch([FAR], state=True, outside=True)
            buffer.saw(place(20))
            buffer.fence({A: 1, FAR: 7 + distance, SCHEMAS: 0})
            positions = {A: 1, FAR: 7, SCHEMAS: 0}
            assert buffer.is_fence_reached(positions) is not waits
            positions[FAR] += distance
            assert buffer.is_fence_reached(positions)

    def test_a_topic_outside_that_the_fence_does_not_know_is_not_waited_for(self) -> None:
        buffer = buffer_of(A)
        buffer.saw(place(20))
        buffer.watch([FAR], state=True, outside=True)
        buffer.fence({A: 1, SCHEMAS: 0})
        assert buffer.is_fence_reached({A: 1, FAR: 0, SCHEMAS: 0})

    def test_a_loading_topic_holds_up_the_others_from_so_far(self) -> None:
        for distance, far in ((NEAR, set[str]()), (NEAR + 1, {"far"})):
            buffer = buffer_of(A, FAR)
            buffer.saw(place(20))
            buffer.fence({A: 0, FAR: 7 + distance, SCHEMAS: 0})
            assert buffer.holding_up({"far"}, {A: 0, FAR: 7, SCHEMAS: 0}) == far
            assert buffer.holding_up({"far"}, {A: 0, SCHEMAS: 0}) == {"far"}

    def test_a_topic_that_the_fence_does_not_know_holds_up_nobody(self) -> None:
        buffer = buffer_of(A, FAR)
        assert buffer.holding_up({"far"}, {A: 0, FAR: NEAR + 1, SCHEMAS: 0}) == set()
        assert buffer.holding_up({"far"}, {A: 0, SCHEMAS: 0}) == set()


class TestPassed:
    def test_nothing_may_lie_at_the_cut_or_beyond(self) -> None:
        for lsn, is_passed in ((19, True), (20, False)):
            buffer = buffer_of(A)
            buffer.add([record(A, 0, lsn)])
            assert buffer.is_passed(place(20), ()) is is_passed
            assert buffer.is_passed(place(20), (), {A: 1}, {A: 1}) is is_passed

    def test_with_ends_all_of_them_must_be_reached(self) -> None:
        buffer = buffer_of(A, B)
        assert buffer.is_passed(place(20), (), {A: 1, B: 2}, {A: 1, B: 2})
        assert not buffer.is_passed(place(20), (), {A: 1, B: 1}, {A: 1, B: 2})
        assert buffer.is_passed(place(20), (), {A: 1, B: 1})

    def test_a_topic_outside_counts_only_if_it_joins(self) -> None:
        buffer = buffer_of(A)
        buffer.watch([FAR], state=True, outside=True)
        buffer.add([record(FAR, 0, 20)])
        assert buffer.is_passed(place(20), ())
        assert not buffer.is_passed(place(20), ("far",))
        buffer.add([record(A, 0, 20)])
        assert not buffer.is_passed(place(20), ())


class TestHoldsBelow:
    def test_only_what_lies_before_the_bound(self) -> None:
        buffer = buffer_of(A, B)
        assert not buffer.holds_below(LSN(20))
        buffer.add([record(B, 0, 20), record(B, 1, 30)])
        assert not buffer.holds_below(LSN(20))
        assert buffer.holds_below(LSN(21))

    def test_of_a_topic_outside_only_what_may_be_taken(self) -> None:
        buffer = buffer_of(A)
        buffer.watch([FAR, FAR_TOO], state=True, outside=True)
        buffer.add([record(FAR, 0, 15), record(FAR_TOO, 0, 10)])
        assert buffer.holds_below(LSN(20)), "both partitions were read up to 10"
        assert offsets(buffer.take(LSN(20))) == [0], "that of the other partition has to wait"
        assert not buffer.holds_below(LSN(20))


class TestOutside:
    def test_all_partitions_of_a_topic_bound_what_is_taken_of_it(self) -> None:
        buffer = buffer_of()
        buffer.watch([FAR, FAR_TOO], state=True, outside=True)
        buffer.add([record(FAR_TOO, 0, 10), record(FAR_TOO, 1, 12), record(FAR, 0, 11)])
        assert offsets(buffer.take(LSN(20))) == [0, 0], "beyond 11, the first partition may hold more"
        buffer.add([record(FAR, 1, 13)])
        assert offsets(buffer.take(LSN(20))) == [1]

    def test_a_partition_that_was_read_to_the_cut_does_not_keep_its_topic_from_joining(self) -> None:
        for lsn, joining in ((39, set[str]()), (40, {"far"})):
            buffer = buffer_of(A)
            buffer.watch([FAR], state=True, outside=True)
            buffer.saw(place(40))
            buffer.fence({A: 0, FAR: 9, SCHEMAS: 0})
            buffer.add([record(FAR, 0, lsn)])
            assert buffer.joining(place(40), {A: 0, FAR: 1, SCHEMAS: 0}) == joining

    def test_a_partition_is_ahead_once_it_is_at_the_bound(self) -> None:
        buffer = buffer_of(A, B)
        buffer.add([record(A, 0, 19), record(B, 0, 20)])
        assert buffer.ahead(LSN(20)) == [B]
        assert buffer.ahead(LSN(19)) == [A, B]

    def test_what_lies_at_the_bound_is_beyond_it(self) -> None:
        buffer = buffer_of(A)
        buffer.add([record(A, 0, 20), record(A, 1, 25)])
        (held,) = buffer.beyond(LSN(20))
        assert (held.record.offset, held.last) == (0, 1)
        assert [each.offset for each in buffer.set_apart(held, LSN(25))] == [1], "the one at the bound"
        assert buffer.beyond(LSN(21)) == []
