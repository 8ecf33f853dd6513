"""Lesson: how keys are spread over partitions, which keys are hot, and what adding partitions does to them."""

from __future__ import annotations

from cdc.lab.learn.classroom import AT_ONCE, Classroom, LessonRecord, Topic, begin
from cdc.topics.cluster import Cluster
from cdc.topics.partitioner import PARTITIONERS, KeyPlacement, PlacementCensus
from cdc.topics.scan import read_keys

_PARTITIONS, _MORE = 4, 6
_CUSTOMERS = 300
_HOT = "customer-007"
_HOT_RECORDS = 700


def teach(room: Classroom) -> None:
    """Spread keys, find the hot one, add partitions, and look for keys that are now in two of them."""
    page, topic = room.page, room.topic("keys", partitions=_PARTITIONS)
    names = [f"customer-{number:03}" for number in range(_CUSTOMERS)]
    tests = ["test-a", "test-b", "test-c"]
    topic.put((name, "before") for name in [*tests, *names, *[_HOT] * _HOT_RECORDS])
    page.say(
        f"{topic.name} has {_PARTITIONS} partitions. A producer hashes the key to choose one. Java clients use "
        "murmur2, and so does this lesson. librdkafka uses CRC32 by default, so a Python program that does not set a "
        "partitioner would put most of these keys elsewhere."
    )
    where = {each.key: each.partition for each in topic.records()}
    page.table(
        "Where three keys are",
        ("key", "partition", "by murmur2", "by CRC32"),
        [(key, where[key], _by("murmur2", key), _by("crc32", key)) for key in tests],
    )
    room.check(all(where[key] == _by("murmur2", key) for key in names), "every key is where murmur2 puts it")

    placed = _placement(topic)
    page.table("How the keys are spread", ("partition", "keys", "records", "share of records"), _shares(placed))
    hot = [(key.decode(), count, where[key.decode()]) for key, count in placed.hot[:3]]
    page.table("The busiest keys", ("key", "records", "partition"), hot)
    page.say(
        f"The keys are spread evenly, the records are not: {hot[0][0]} alone has {hot[0][1]:,} of "
        f"{sum(placed.records):,}. All records of a key lie in one partition. This keeps them in order, and the "
        "cleaner can compare them. It also means that more partitions do not help against a hot key."
    )

    topic.add_partitions(_MORE)
    topic.put((name, "after") for name in names)
    torn = _placement(topic)
    page.say(
        f"Now somebody adds partitions: {_MORE} instead of {_PARTITIONS}. Kafka moves nothing. But hash modulo "
        f"{_MORE} is another number than hash modulo {_PARTITIONS}. So when every customer is written once more, "
        f"{torn.split_count} of {_CUSTOMERS} go to a partition that holds no earlier record of theirs."
    )
    key = next(each.key.decode() for each in torn.split)
    topic.put([(key, None)])
    topic.close_segments("closing", "1", range(_MORE))
    topic.set(min_cleanable_dirty_ratio=AT_ONCE)
    left = room.until("the cleaner passes over all partitions", lambda: _passed(topic, key))
    room.check(len({each.partition for each in left}) == 2, "the key lies in two partitions")
    page.table(
        f"{key}, deleted and cleaned",
        ("partition", "offset", "value"),
        [(each.partition, each.offset, each.value or "null: deleted") for each in left],
    )
    page.say(
        f"{key} was deleted, and the cleaner has passed. But the cleaner works on each partition alone, and the "
        f"tombstone is in another one, so the old row in partition {where[key]} stays for ever. Whether a reader "
        "believes in the row or in the delete depends on which partition it reads first."
    )
    page.remember(
        "A key stays in one partition as long as every writer uses the same partitioner and the partition count never "
        "changes. Choose the count before the first write. To change it, write everything to a new topic. Against a "
        "hot key, change the key; more partitions do not help.",
        "cdc topics partitioner users -b localhost:9092",
    )


def _by(partitioner: str, key: str) -> int:
    return PARTITIONERS[partitioner](key.encode()) % _PARTITIONS


def _placement(topic: Topic) -> KeyPlacement:
    with Cluster(topic.options) as cluster:
        places = cluster.places([topic.name])[topic.name]
        census = PlacementCensus(len(places))
        for each in read_keys(cluster, places, newest=None, begin=begin):
            census.add(each.partition, each.key)
    return census.placement(top=5)


def _shares(placed: KeyPlacement) -> list[tuple[int, int, int, str]]:
    total = sum(placed.records)
    return [
        (number, keys, records, f"{records / total:.0%}")
        for number, (keys, records) in enumerate(zip(placed.keys, placed.records, strict=True))
    ]


def _passed(topic: Topic, key: str) -> list[LessonRecord] | None:
    """Returns the records of a key once no partition holds two records of any key; None before."""
    records = topic.records()
    places = {(each.partition, each.key) for each in records}
    return [each for each in records if each.key == key] if len(places) == len(records) else None
