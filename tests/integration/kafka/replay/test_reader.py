"""How far a partition was read, on a real broker: markers, aborted records, open Kafka transactions, empty ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from cdc.base.errors import ConfigError, TopicRefused, TopicUnavailable
from cdc.contract.ports import StoredRecord
from cdc.kafka.replay.backfills import read_published
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.stack import Kafka
from tests.support.reading import fold_topic
from tests.support.topic_writer import SOURCE, TopicWriter
from tests.support.waiting import eventually


@pytest.fixture
def topics(kafka: Kafka) -> TopicWriter:
    return TopicWriter(kafka.bootstrap)


@pytest.fixture
def reader(topics: TopicWriter) -> Iterator[TopicReader]:
    with closing(TopicReader(topics.options)) as opened:
        yield opened


def read_up_to(reader: TopicReader, targets: dict[tuple[str, int], int]) -> list[StoredRecord]:
    records: list[StoredRecord] = []

    def reached() -> bool:
        records.extend(reader.poll(100, 0.05))
        return all(reader.positions()[each] >= end for each, end in targets.items())

    eventually(reached, message=lambda: f"positions {reader.positions()} to reach {targets}")
    return records


def ends_with_markers(
    reader: TopicReader, partitions: Sequence[tuple[str, int]], offsets: int
) -> dict[tuple[str, int], int]:
    """The high watermarks, once the partitions hold so many offsets: a commit returns before its markers are there."""

    def all_there() -> dict[tuple[str, int], int] | None:
        ends = reader.high_watermarks(partitions)
        return ends if sum(ends.values()) >= offsets else None

    ends = eventually(all_there, message=f"{offsets} records and markers")
    assert ends is not None
    return ends


def test_position_passes_commit_markers(topics: TopicWriter, reader: TopicReader) -> None:
    table = topics.table("t", id="int4")
    partitions = reader.partitions(table.topic)
    for lsn in range(10, 15):
        topics.transaction(lsn, *((table, {"id": i}) for i in range(8)))
    reader.add(dict.fromkeys(partitions, 0))
    ends = ends_with_markers(reader, partitions, 40 + 5 * len(partitions))
    records = read_up_to(reader, ends)
    assert len(records) == 40
    last = {(each.topic, each.partition): each.offset for each in records}
    assert all(end - last[each] == 2 for each, end in ends.items()), "a marker ends each partition"


def test_aborted_tail_and_empty_partitions_end(topics: TopicWriter, reader: TopicReader) -> None:
    table = topics.table("t", id="int4")
    with topics.kafka_transaction(commit=False):
        for i in range(50):
            topics.upsert(table, {"id": i}, 10)
    empty = topics.table("empty", id="int4")
    partitions = [*reader.partitions(table.topic), *reader.partitions(empty.topic)]
    reader.add(dict.fromkeys(partitions, 0))
    ends = ends_with_markers(reader, partitions, 52)
    assert read_up_to(reader, ends) == []


def test_fence_spares_the_wait_for_the_marker_but_not_for_records(topics: TopicWriter, reader: TopicReader) -> None:
    table = topics.table("t", id="int4")
    (partition,) = reader.partitions(topics.schemas_topic)
    reader.add({partition: 0})
    with topics.kafka_transaction():
        topics.define(table)
    eventually(lambda: reader.fence()[partition] == 1, message="the marker at offset 1 need not be read")
    topics.producer.begin_transaction()
    topics.define(table)
    topics.producer.flush()
    assert reader.fence()[partition] == 3, "offset 2 is a record whose fate is open"
    topics.producer.commit_transaction()
    assert [each.offset for each in read_up_to(reader, {partition: 3})] == [0, 2]
    assert reader.fence()[partition] == 3


def test_open_kafka_transaction_hides_what_follows_and_fence_waits_for_it(
    topics: TopicWriter, reader: TopicReader
) -> None:
    (partition,) = reader.partitions(topics.schemas_topic)
    table = topics.table("t", id="int4")
    other = topics.new_producer(f"{topics.name}-other")
    other.begin_transaction()
    other.produce(topics.schemas_topic, key=b"open", value=b"1")
    other.flush()
    with topics.kafka_transaction():
        topics.define(table)
    reader.add({partition: 0})
    target = reader.fence()[partition]
    assert target == 3
    assert reader.poll(10, 0.3) == []
    assert reader.positions()[partition] < target
    other.commit_transaction()
    assert [each.offset for each in read_up_to(reader, {partition: target})] == [0, 1]


def test_records_carry_key_value_header(topics: TopicWriter, reader: TopicReader) -> None:
    table = topics.table("t", id="int4")
    with topics.kafka_transaction():
        topics.upsert(table, {"id": 1}, 10)
        topics.delete(table, {"id": 1}, 10, 2)
        topics.write(table.topic, b'{"id":1}', b"", b"")
    partitions = reader.partitions(table.topic)
    reader.add(dict.fromkeys(partitions, 0))
    records = read_up_to(reader, reader.high_watermarks(partitions))
    assert [(each.key, each.value) for each in records] == [
        (b'{"id":1}', b'{"id":1}'),
        (b'{"id":1}', None),
        (b'{"id":1}', b""),
    ]
    assert records[0].header == topics.header(table, 10)
    assert records[2].header == b""


def test_hold_and_resume(topics: TopicWriter, reader: TopicReader) -> None:
    table = topics.table("t", id="int4")
    topics.transaction(10, *((table, {"id": i}) for i in range(100)))
    held, free = reader.partitions(table.topic)
    reader.add({held: 0, free: 0})
    reader.hold([held])
    ends = reader.high_watermarks([held, free])
    first = read_up_to(reader, {free: ends[free]})
    assert {each.partition for each in first} == {free[1]}
    assert reader.poll(10, 0.2) == []
    reader.hold(())
    second = read_up_to(reader, ends)
    assert len(first) + len(second) == 100


def test_a_partition_that_was_held_is_read_when_it_is_added_again(topics: TopicWriter, reader: TopicReader) -> None:
    """The client remembered that it was paused: one that was to be read again brought nothing more."""
    table = topics.table("t", id="int4")
    topics.transaction(10, *((table, {"id": i}) for i in range(100)))
    held, other = reader.partitions(table.topic)
    reader.add({held: 0, other: 0})
    ends = reader.high_watermarks([held, other])
    read_up_to(reader, ends)
    reader.hold([held, other])
    reader.again({held: 0})
    again = read_up_to(reader, {held: ends[held]})
    assert {each.partition for each in again} == {held[1]}
    assert again[0].offset == 0
    assert reader.poll(10, 0.2) == [], "the other one is held still"


def test_start_in_the_middle(topics: TopicWriter, reader: TopicReader) -> None:
    with topics.kafka_transaction():
        for lsn in range(10):
            topics.progress(lsn)
    reader.add({(topics.progress_topic, 0): 7})
    records = read_up_to(reader, {(topics.progress_topic, 0): 11})
    assert [each.offset for each in records] == [7, 8, 9]


def test_offset_that_is_gone_is_an_error(topics: TopicWriter, reader: TopicReader) -> None:
    reader.add({(topics.progress_topic, 0): 1_000})
    with pytest.raises(TopicUnavailable, match="no longer has the offset"):
        eventually(lambda: reader.poll(10, 0.1))


def test_topics_that_were_just_made(topics: TopicWriter, reader: TopicReader) -> None:
    """Their brokers say for a moment that they do not lead them."""
    for i in range(30):
        topic = f"just.made.{topics.name}.{i}"
        topics.create_topic(topic, 3)
        assert reader.high_watermarks([(topic, number) for number in range(3)]) == {(topic, n): 0 for n in range(3)}


def test_missing_topic(topics: TopicWriter, reader: TopicReader) -> None:
    assert reader.partitions("no.such.topic") == []
    with pytest.raises(TopicRefused, match=r"'no\.such\.topic' does not exist"):
        read_published(topics.admin, "no.such.topic", b"key")


def test_no_broker(topics: TopicWriter) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000, "log_level": 0}
    with closing(TopicReader(nowhere)) as reader, pytest.raises(TopicUnavailable):
        reader.add({("t", 0): 0})


def test_unknown_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        TopicReader({"bootstrap.servers": "127.0.0.1:1", "no.such.option": 1})


def test_stored_progress(topics: TopicWriter) -> None:
    assert read_published(topics.admin, topics.progress_topic, topics.key).stream is None
    with topics.kafka_transaction():
        topics.progress(10)
        topics.progress(20, partial=(25, 7))
    with topics.kafka_transaction(commit=False):
        topics.progress(99)
    progress = read_published(topics.admin, topics.progress_topic, topics.key).stream
    assert progress is not None
    assert (progress.lsn, progress.partial, progress.source) == (20, (25, 7), SOURCE)
    assert read_published(topics.admin, topics.progress_topic, b"another").stream is None


def test_a_partition_is_taken_up_again_from_the_beginning(topics: TopicWriter, reader: TopicReader) -> None:
    table = topics.table("t", id="int4")
    first, second = reader.partitions(table.topic)
    topics.transaction(10, *((table, {"id": i}) for i in range(40)))
    ends = reader.high_watermarks([first, second])
    found = []
    for partition in (first, second, first):
        reader.add({partition: 0})
        found.append(read_up_to(reader, {partition: ends[partition]}))
        assert {(each.topic, each.partition) for each in found[-1]} == {partition}
        reader.remove([partition])
        assert partition not in reader.positions()
    assert found[0] == found[2]
    assert len(found[0]) + len(found[1]) == 40


def test_fold(topics: TopicWriter) -> None:
    table = topics.table("t", id="int4", v="text")
    topics.transaction(10, *((table, {"id": i, "v": "old"}) for i in range(20)))
    with topics.kafka_transaction():
        for i in range(0, 20, 2):
            topics.delete(table, {"id": i}, 20)
        topics.upsert(table, {"id": 1, "v": "new"}, 20)
        topics.write(table.topic, b'{"id":3}', b"null", topics.header(table, 20))
    state = fold_topic(topics.options, table.topic)
    assert state.keys() == {b'{"id":%d}' % i for i in range(1, 20, 2)}
    assert state[b'{"id":1}'].value == b'{"id":1,"v":"new"}'
    assert state[b'{"id":3}'].value == b"null", "only a record without a value deletes"
    assert state[b'{"id":1}'].header == topics.header(table, 20)
