"""What is in the topics beyond the progress is not published again, and nothing else is left out."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from cdc.base.lsn import LSN
from cdc.bridge.order.repeats import Repeats
from cdc.contract.header import BACKFILL, DELETE, INSERT, TRUNCATE, HeaderStamp, header_position
from cdc.contract.partition import partition_of
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import Ready

TOPIC, COUNT = "shop.public.t", 3


def ready(lsn: int, seq: int, key: bytes, value: bytes | None = b"{}") -> Ready:
    header = HeaderStamp(LSN(lsn), 7, 0).header(DELETE if value is None else INSERT, seq, "0" * 16)
    return TOPIC, key, value, header, None


def stored(record: Ready, offset: int = 0) -> StoredRecord:
    topic, key, value, header, _ = record
    return StoredRecord(topic, partition_of(key, COUNT), offset, key, value, header)


def last_of(*records: StoredRecord) -> dict[Partition, StoredRecord]:
    return {(each.topic, each.partition): each for each in records}


def repeats(*records: StoredRecord) -> Repeats:
    return Repeats(last_of(*records), {TOPIC: COUNT})


def same_partition(key: bytes) -> bytes:
    """Another key of the same partition."""
    return next(
        other
        for other in (b"other %d" % i for i in range(100))
        if partition_of(other, COUNT) == partition_of(key, COUNT)
    )


def elsewhere(key: bytes) -> bytes:
    return next(
        other
        for other in (b"other %d" % i for i in range(100))
        if partition_of(other, COUNT) != partition_of(key, COUNT)
    )


def test_what_lies_up_to_the_last_record_of_its_partition_is_left_out() -> None:
    before, last, behind = ready(100, 1, b"a"), ready(100, 2, b"a"), ready(100, 3, b"a")
    assert repeats(stored(last)).left([before, last, behind]) == [behind]


def test_another_partition_has_an_end_of_its_own() -> None:
    other = elsewhere(b"a")
    assert repeats(stored(ready(200, 5, b"a"))).left([ready(100, 1, other), ready(200, 4, b"a")]) == [
        ready(100, 1, other)
    ]


def test_an_empty_partition_and_a_topic_that_was_made_since_have_nothing() -> None:
    record = ready(100, 1, b"a")
    assert repeats().left([record]) == [record]
    assert Repeats({}, {}).left([record]) == [record]


def test_of_a_changed_key_the_half_that_is_missing_is_published() -> None:
    """Both have one position; the tombstone of the old key comes first."""
    new = same_partition(b"old")
    gone, row = ready(100, 1, b"old", None), ready(100, 1, new)
    assert repeats(stored(gone)).left([gone, row]) == [row]
    assert repeats(stored(row)).left([gone, row]) == []
    assert repeats(stored(row)).left([gone, row, ready(100, 2, new)]) == [ready(100, 2, new)]


@pytest.mark.parametrize(
    "header",
    [
        HeaderStamp(LSN(100), 7, 0).header(TRUNCATE, 3, "0" * 16),
        HeaderStamp(LSN(100), None, 0, "1:1:").header(BACKFILL, 3, "0" * 16),
        HeaderStamp(LSN(100), None, 0, "1:1:").header(DELETE, 3, "0" * 16),
    ],
)
def test_behind_what_came_in_a_kafka_transaction_nothing_is_left_out(header: bytes) -> None:
    """A table that begins anew: its tombstones have the position of the change that follows them."""
    tombstone = StoredRecord(TOPIC, partition_of(b"a", COUNT), 9, b"a", None, header)
    change = ready(100, 3, b"a")
    assert repeats(tombstone).left([change]) == [change]
    assert repeats(tombstone).greatest == LSN(100)


def test_they_are_passed_once_all_transactions_of_the_topics_were_taken() -> None:
    found = repeats(stored(ready(100, 2, b"a")), stored(ready(300, 1, elsewhere(b"a"))))
    assert found.greatest == LSN(300)
    assert not found.are_passed(LSN(300))
    assert found.are_passed(LSN(301))


@pytest.mark.parametrize("seed", range(200))
def test_killed_again_and_again_each_partition_holds_each_record_once(seed: int) -> None:
    """Each life sends from any covered place on, and leaves any beginning of that in each partition."""
    rng = random.Random(seed)
    stream = _stream(rng)
    logs: dict[int, list[Ready]] = {number: [] for number in range(COUNT)}
    covered = 0
    while covered < len(stream):
        ends = [stored(log[-1]) for log in logs.values() if log]
        left = repeats(*ends).left(stream[covered:])
        sent = left if rng.random() < 0.3 else left[: rng.randint(0, len(left))]
        reached = {number: rng.random() for number in logs}
        for number, log in logs.items():
            of_partition = [each for each in sent if partition_of(each[1], COUNT) == number]
            log += of_partition[: round(reached[number] * len(of_partition))]
        covered = _covered(stream, logs, covered, rng)
    for number, log in logs.items():
        assert log == [each for each in stream if partition_of(each[1], COUNT) == number]


def _stream(rng: random.Random) -> list[Ready]:
    stream: list[Ready] = []
    for lsn in range(100, 130):
        for seq in range(1, rng.randint(2, 5)):
            key = b"%d" % rng.randint(0, 6)
            if rng.random() < 0.3:
                stream += [ready(lsn, seq, key, None), ready(lsn, seq, key + b"'")]
            else:
                stream.append(ready(lsn, seq, key))
    return stream


def _covered(stream: Sequence[Ready], logs: dict[int, list[Ready]], before: int, rng: random.Random) -> int:
    """A place before which all is there, at the beginning of a change; not always the last one."""
    there = {id(each) for log in logs.values() for each in log}
    end = next((i for i, each in enumerate(stream) if id(each) not in there), len(stream))
    place = end if end == len(stream) else rng.randint(before, max(before, end))
    while 0 < place < len(stream) and header_position(stream[place][3]) == header_position(stream[place - 1][3]):
        place -= 1
    return max(place, before)
