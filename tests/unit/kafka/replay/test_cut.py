"""The cut: which records it takes, when it may lie where, and that nothing can stall or break it."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable

import pytest

from cdc.base.lsn import LSN, ZERO
from cdc.contract.header import HeaderStamp
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import Progress, SourceIdentity
from cdc.kafka.replay.cut import MAX_SEEN, Cut, CutBuffer

A, B, SCHEMAS = ("t", 0), ("t", 1), ("schemas", 0)
SOURCE = SourceIdentity("1", 1, 1)


def record(partition: Partition, offset: int, lsn: int, value: bytes | None = b"{}") -> StoredRecord:
    header = HeaderStamp(LSN(lsn), 1, 0).header("u", 1, "f" * 16)
    return StoredRecord(*partition, offset, b"%d" % offset, value, header)


def place(lsn: int, offset: int | None = None) -> Cut:
    return Cut(Progress(LSN(lsn), None, 0, SOURCE), lsn if offset is None else offset)


def buffer_of(*partitions: Partition, records: int = 1_000, floor: int = 0) -> CutBuffer:
    buffer = CutBuffer(records, 1 << 30, LSN(floor))
    buffer.watch([SCHEMAS], state=False)
    buffer.watch(partitions, state=True)
    return buffer


def offsets(taken: dict[str, list[StoredRecord]]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for records in taken.values() for each in records]


def is_full(buffer: CutBuffer) -> bool:
    return buffer.is_full


def test_no_cut_before_the_fence_is_reached() -> None:
    buffer = buffer_of(A, B)
    positions = {A: 0, B: 0, SCHEMAS: 0}
    assert not buffer.wants_fence(positions)
    buffer.saw(place(20))
    assert buffer.wants_fence(positions)
    buffer.fence({A: 2, B: 1, SCHEMAS: 1})
    assert not buffer.wants_fence(positions)
    buffer.add([record(A, 0, 10), record(A, 1, 30)])
    positions[A] = 2
    assert buffer.cut(positions) is None, "B is unread, and may hold records below 20"
    positions[B] = 1
    assert buffer.cut(positions) is None, "a definition may be unread"
    positions[SCHEMAS] = 1
    cut = buffer.cut(positions)
    assert cut == place(20)
    assert offsets(buffer.take_cut(cut)) == [(0, 0)]
    assert buffer.next_offsets(positions) == {A: 1, B: 1}
    assert buffer.cut(positions) is None


def test_what_goes_back_in_its_partition_is_left_out_once_it_is_expected() -> None:
    buffer = buffer_of(A, B, floor=15)
    buffer.expect_stale()
    buffer.add([record(A, 0, 14), record(A, 1, 30), record(A, 2, 20), record(A, 3, 30), record(B, 0, 13)])
    assert offsets(buffer.take(LSN(100))) == [(0, 0), (0, 1), (0, 3)]
    buffer.add([record(B, 1, 15), record(A, 4, 29), record(A, 5, 31)])
    assert offsets(buffer.take(LSN(100))) == [(0, 5), (1, 1)]
    assert buffer.next_offsets({A: 6, B: 2}) == {A: 6, B: 2}


def test_of_a_topic_that_is_read_from_its_beginning_old_records_are_new() -> None:
    buffer = CutBuffer(1_000, 1 << 30, LSN(500))
    buffer.expect_stale()
    buffer.watch([A], state=True, outside=True)
    buffer.add([record(A, 0, 14), record(A, 1, 30)])
    assert offsets(buffer.take(LSN(600))) == [(0, 0), (0, 1)]


def test_partition_that_shows_a_later_record_needs_no_fence() -> None:
    buffer = buffer_of(A, B)
    buffer.saw(place(20))
    buffer.saw(place(40))
    buffer.fence({A: 1_000, B: 5, SCHEMAS: 0})
    positions = {A: 3, B: 5, SCHEMAS: 0}
    buffer.add([record(A, 0, 10), record(A, 1, 15), record(A, 2, 25), record(B, 4, 12)])
    assert buffer.cut(positions) == place(20), "A passed 20 and may still have records below 40"
    assert offsets(buffer.take_cut(place(20))) == [(0, 0), (0, 1), (1, 4)]
    assert buffer.next_offsets(positions) == {A: 2, B: 5}


def test_newest_progress_wins_and_equal_lsn_is_beyond() -> None:
    buffer = buffer_of(A)
    for lsn in (20, 21, 30):
        buffer.saw(place(lsn, offset=lsn))
    buffer.fence({A: 3, SCHEMAS: 0})
    positions = {A: 3, SCHEMAS: 0}
    buffer.add([record(A, 0, 10), record(A, 1, 29), record(A, 2, 30)])
    cut = buffer.cut(positions)
    assert cut is not None
    assert cut.offset == 30
    assert offsets(buffer.take_cut(cut)) == [(0, 0), (0, 1)]


def test_new_progress_does_not_move_a_fence_under_way() -> None:
    buffer = buffer_of(A)
    positions = {A: 0, SCHEMAS: 0}
    buffer.saw(place(20))
    buffer.fence({A: 2, SCHEMAS: 0})
    for lsn in range(21, 200):
        buffer.saw(place(lsn))
        assert not buffer.wants_fence(positions)
    buffer.add([record(A, 0, 10), record(A, 1, 11)])
    positions[A] = 2
    assert buffer.cut(positions) == place(20)
    buffer.take_cut(place(20))
    assert buffer.wants_fence(positions)


def test_new_partitions_need_a_new_fence() -> None:
    buffer = buffer_of(A)
    positions = {A: 0, SCHEMAS: 0}
    buffer.saw(place(20))
    buffer.fence({A: 0, SCHEMAS: 0})
    buffer.watch([B], state=True)
    positions[B] = 0
    assert buffer.cut(positions) is None
    assert buffer.wants_fence(positions)


def test_floor_is_where_the_replica_stands() -> None:
    buffer = buffer_of(A, floor=20)
    positions = {A: 0, SCHEMAS: 0}
    buffer.saw(place(19))
    assert not buffer.wants_fence(positions)
    buffer.saw(place(20))
    assert buffer.wants_fence(positions), "tables that lag behind may catch up at the same cut"


def test_spill_without_known_progress_takes_all_and_raises_the_floor() -> None:
    buffer = buffer_of(A, B, records=3)
    positions = {A: 2, B: 1, SCHEMAS: 0}
    buffer.add([record(A, 0, 50), record(A, 1, 50), record(B, 0, 55)])
    assert is_full(buffer)
    assert len(offsets(buffer.spill(LSN(60)))) == 3
    assert not is_full(buffer)
    buffer.saw(place(55))
    assert not buffer.wants_fence(positions), "55 does not cover the record at 55 that was spilled"
    buffer.saw(place(56))
    assert buffer.wants_fence(positions)
    buffer.fence({A: 2, B: 1, SCHEMAS: 0})
    assert buffer.cut(positions) == place(56)


def test_spill_towards_a_known_progress_leaves_what_lies_beyond() -> None:
    buffer = buffer_of(A, B, records=3)
    buffer.saw(place(40))
    buffer.fence({A: 100, B: 100, SCHEMAS: 0})
    positions = {A: 3, B: 0, SCHEMAS: 0}
    buffer.add([record(A, 0, 10), record(A, 1, 45), record(A, 2, 46)])
    assert buffer.cut(positions) is None
    assert offsets(buffer.spill(LSN(60))) == [(0, 0)]
    assert offsets(buffer.spill(LSN(60))) == []
    assert list(buffer.ahead(LSN(60))) == [A]
    assert buffer.next_offsets(positions) == {A: 1, B: 0}


def test_rows_that_come_while_the_stream_stands_still_get_a_cut_of_their_own() -> None:
    """As a backfill brings them: before the position of a progress that was cut already."""
    buffer = buffer_of(A)
    positions = {A: 1, SCHEMAS: 0}
    buffer.saw(place(20, offset=1))
    buffer.fence({A: 1, SCHEMAS: 0})
    buffer.add([record(A, 0, 10)])
    buffer.saw(place(20, offset=3))
    first = buffer.cut(positions)
    assert first == place(20, offset=1), "nobody asked yet what lies before the record at 3"
    buffer.take_cut(first)
    buffer.add([record(A, 1, 19)])
    positions[A] = 2
    assert buffer.wants_fence(positions)
    assert buffer.cut(positions) is None
    buffer.fence({A: 2, SCHEMAS: 0})
    second = buffer.cut(positions)
    assert second == place(20, offset=3)
    assert offsets(buffer.take_cut(second)) == [(0, 1)]
    assert not buffer.wants_fence(positions)


def test_record_without_header_goes_with_its_predecessor() -> None:
    buffer = buffer_of(A)
    stray = record(A, 1, 0)._replace(header=b"")
    buffer.add([record(A, 0, 10), stray, record(A, 2, 30), record(A, 3, 30)._replace(header=b"x")])
    assert offsets(buffer.take(LSN(20))) == [(0, 0), (0, 1)]
    assert offsets(buffer.take(LSN(31))) == [(0, 2), (0, 3)]


def in_memory() -> int:
    """Places that anybody remembers."""
    return sum(type(each) is Cut for each in gc.get_objects())


def test_remembers_a_bounded_number_of_places() -> None:
    buffer, before = buffer_of(A), in_memory()
    for lsn in range(1, 10 * MAX_SEEN):
        buffer.saw(place(lsn))
    positions = {A: 0, SCHEMAS: 0}
    buffer.fence(positions)
    assert buffer.cut(positions) == place(10 * MAX_SEEN - 1)
    assert 0 < in_memory() - before <= MAX_SEEN


class History:
    """A random past: Kafka transactions whose records and markers lie in partitions, as a bridge would write them.

    Sometimes the stream stands still and a backfill brings rows, with the last byte before the stream's position.
    """

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.logs: dict[Partition, list[StoredRecord | None]] = {("t", i): [] for i in range(partitions)}
        self.progress: list[tuple[Cut, dict[Partition, int]]] = []
        lsn = 100
        touched: set[Partition] = set()
        for _ in range(rng.randint(5, 40)):
            lsn += rng.randint(2, 9)
            for _ in range(rng.choice((1, 2, 3, 30))):
                partition = rng.choice(list(self.logs))
                self.logs[partition].append(record(partition, len(self.logs[partition]), lsn))
                touched.add(partition)
                if rng.random() < 0.05:  # a Kafka transaction ends inside the source transaction
                    self._end_kafka_transaction(touched)
            if rng.random() < 0.4:
                self._end_kafka_transaction(touched)
                self._publish(lsn + 1)
                for _ in range(rng.choice((0, 0, 1, 3))):
                    for partition in rng.choices(list(self.logs), k=rng.choice((1, 5))):
                        self.logs[partition].append(record(partition, len(self.logs[partition]), lsn))
                        touched.add(partition)
                    self._end_kafka_transaction(touched)
                    self._publish(lsn + 1)
        self._end_kafka_transaction(touched)
        self._publish(lsn + 1)

    def ends(self) -> dict[Partition, int]:
        return {partition: len(log) for partition, log in self.logs.items()}

    def _publish(self, lsn: int) -> None:
        self.progress.append((place(lsn, len(self.progress)), self.ends()))

    def _end_kafka_transaction(self, touched: set[Partition]) -> None:
        for partition in touched:
            self.logs[partition].append(None)
        touched.clear()

    def below(self, lsn: int) -> set[tuple[int, int]]:
        return {
            (each.partition, each.offset)
            for log in self.logs.values()
            for each in log
            if each is not None and each.header and int(each.header.split(b"lsn=0/")[1].split(b";")[0], 16) < lsn
        }


@pytest.mark.parametrize("seed", range(150))
def test_any_order_of_reading_gives_commit_prefixes(seed: int) -> None:
    """Reads partitions and progress in random steps, with little memory; each cut must be exactly a prefix."""
    rng = random.Random(seed)
    history = History(rng, rng.randint(1, 4))
    buffer = CutBuffer(rng.choice((3, 10, 1_000)), 1 << 30)
    buffer.watch(history.logs, state=True)
    positions = dict.fromkeys(history.logs, 0)
    progress_read, applied, cuts = 0, set[tuple[int, int]](), list[Cut]()
    held: set[Partition] = set()
    for _ in range(20_000):
        if rng.random() < 0.3 and progress_read < len(history.progress):
            buffer.saw(history.progress[progress_read][0])
            progress_read += 1
        readable = [each for each, log in history.logs.items() if positions[each] < len(log) and each not in held]
        if readable and not (buffer.is_full and rng.random() < 0.9):
            partition = rng.choice(readable)
            end = positions[partition] + rng.randint(1, 6)
            batch = history.logs[partition][positions[partition] : end]
            buffer.add(each for each in batch if each is not None)
            positions[partition] += len(batch)
        if buffer.wants_fence(positions):
            # The watermarks of any moment after the newest progress seen was written
            seen = history.progress[progress_read - 1][1]
            buffer.fence({each: rng.choice((seen[each], end)) for each, end in history.ends().items()})
        if buffer.is_full or buffer.is_fence_reached(positions):
            cut = buffer.cut(positions)
            if cut is not None:
                applied |= set(offsets(buffer.take_cut(cut)))
                held = set()
                cuts.append(cut)
                prefix, ends = history.below(cut.progress.lsn), history.progress[cut.offset][1]
                assert applied <= prefix, "beyond the cut"
                assert {each for each in prefix if each[1] < ends["t", each[0]]} <= applied, "not a commit prefix"
                assert_resumable(history, buffer.next_offsets(positions), applied)
            elif buffer.is_full:
                published = history.progress[progress_read - 1][0].progress.lsn if progress_read else ZERO
                spilled = buffer.spill(published)
                applied |= set(offsets(spilled))
                held = set() if spilled else set(buffer.ahead(published))
        if cuts and cuts[-1] == history.progress[-1][0]:
            break
    assert [each.offset for each in cuts] == sorted({each.offset for each in cuts})
    assert cuts[-1] == history.progress[-1][0], "stalled"
    assert applied == history.below(cuts[-1].progress.lsn)


def assert_resumable(history: History, next_offsets: dict[Partition, int], applied: Iterable[tuple[int, int]]) -> None:
    """Everything before the stored offsets is applied, everything from there on is not."""
    for (topic, number), end in next_offsets.items():
        log = history.logs[topic, number]
        assert {(number, i) for i in range(end) if log[i] is not None} == {
            each for each in applied if each[0] == number
        }


def test_topic_that_is_behind_holds_up_no_cut_and_joins_at_its_end() -> None:
    far, near = ("far", 0), ("far", 1)
    buffer = buffer_of(A)
    buffer.watch([far, near], state=True, outside=True)
    positions = {A: 1, SCHEMAS: 0, far: 2, near: 1}
    buffer.saw(place(40))
    buffer.fence({A: 1, SCHEMAS: 0, far: 50_000, near: 1})
    buffer.add([record(A, 0, 30), record(far, 0, 5), record(far, 1, 9), record(near, 0, 20)])
    assert buffer.is_fence_reached(positions)
    cut = buffer.cut(positions)
    assert cut == place(40)
    assert buffer.joining(cut, positions) == set()
    assert offsets(buffer.take_cut(cut)) == [(0, 0), (0, 0), (0, 1)], "in the order of LSNs: 20 waits for partition 0"
    assert buffer.ahead(LSN(60)) == [near]
    positions[far] = 50_000
    buffer.add([record(far, 49_999, 35)])
    assert buffer.cut(positions) is None, "nothing new was published"
    again = buffer.cut(positions, again=True)
    assert again == place(40)
    assert buffer.joining(again, positions) == {"far"}
    assert offsets(buffer.take_cut(again)) == [(0, 49_999), (1, 0)]
    buffer.join({"far"})
    assert buffer.outside == set()


def test_topics_that_are_all_behind_join_together() -> None:
    buffer = CutBuffer(1_000, 1 << 30)
    buffer.watch([("a", 0), ("b", 0)], state=True, outside=True)
    positions = {("a", 0): 0, ("b", 0): 0}
    buffer.saw(place(40))
    buffer.fence({("a", 0): 0, ("b", 0): 50_000})
    assert buffer.joining(place(40), positions) == set()
    positions["b", 0] = 50_000
    assert buffer.joining(place(40), positions) == {"a", "b"}


def test_many_tombstones_of_large_keys_fill_memory() -> None:
    buffer = CutBuffer(1_000, 100_000)
    buffer.watch([A], state=True)
    buffer.add(record(A, n, 10, None)._replace(key=b"k" * 2_000) for n in range(50))
    assert buffer.is_full


def test_a_loading_topic_with_a_flood_of_records_keeps_no_cut_from_the_others() -> None:
    flood = ("flood", 0)
    buffer = buffer_of(A, flood)
    positions = {A: 0, flood: 0, SCHEMAS: 0}
    buffer.saw(place(20))
    buffer.saw(place(30))
    buffer.fence({A: 1, flood: 20_000, SCHEMAS: 0})
    buffer.add([record(A, 0, 25), record(flood, 0, 10), record(flood, 1, 15)])
    positions |= {A: 1, flood: 2}
    assert buffer.cut(positions) is None
    assert buffer.holding_up((), positions) == frozenset(), "a table that is whole is waited for"
    assert buffer.holding_up(("flood", "t"), positions) == {"flood"}
    buffer.leave(("flood",))
    assert buffer.holding_up(("flood", "t"), positions) == frozenset()
    assert buffer.is_fence_reached(positions)
    cut = buffer.cut(positions)
    assert cut == place(30)
    assert buffer.joining(cut, positions) == frozenset()
    taken = buffer.take_cut(cut)
    assert [each.offset for each in taken["flood"]] == [0, 1], "what was read of it goes along"
    buffer.saw(place(40))
    buffer.fence({A: 1, flood: 20_000, SCHEMAS: 0})
    positions[flood] = 20_000
    assert buffer.joining(place(40), positions) == {"flood"}, "read to the fence, it joins again"


def test_a_topic_that_is_alone_with_its_flood_is_waited_for() -> None:
    buffer = buffer_of(A)
    positions = {A: 0, SCHEMAS: 0}
    buffer.saw(place(20))
    buffer.fence({A: 20_000, SCHEMAS: 0})
    assert buffer.holding_up(("t",), positions) == frozenset()
