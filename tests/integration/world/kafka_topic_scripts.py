"""Scripts about topics and their readers: each returns what it saw, which is the same on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from tests.integration.world.kafka_producer_scripts import Reports, begun, create
from tests.integration.world.kafka_sides import (
    WAIT_S,
    Clients,
    answered,
    ends,
    first_offsets,
    low,
    read,
    set_topic,
    shown,
    taken,
    told,
    tried,
    until_ended,
)

_HOUR_MS: Final = 3_600_000
_BEGAN_MS: Final = 1_600_000_000_000
_PATIENT: Final = {
    "cleanup_policy": "compact",
    "segment_ms": str(_HOUR_MS),
    # The cleaner starts above a ratio, and no ratio is above one.
    "min_cleanable_dirty_ratio": "1.0",
}


def write(clients: Clients, topic: str, count: int, partition: int = 0) -> None:
    """Write records whose keys and values are their numbers."""
    producer = clients.producer({})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"%d" % number, partition)
    producer.flush(WAIT_S)


def delete_before(clients: Clients, topic: str, offset: int) -> object:
    """Delete the records before an offset; returns the new low watermark, or the error."""
    found: list[int] = []
    place = TopicPartition(topic, 0, offset)
    admin = clients.admin()
    outcome = tried(lambda: found.append(admin.delete_records([place])[place].result(WAIT_S).low_watermark))
    return found or outcome


def a_reader_at(clients: Clients, topic: str, offset: int, **conf: Any) -> Any:
    """Returns a consumer of the first partition."""
    consumer = clients.consumer({name.replace("_", "."): value for name, value in conf.items()})
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def the_end_is_told_once(clients: Clients, topic: str) -> list[object]:
    """A reader is told the end when it gets there, and again only after more has been read."""
    create(clients, topic)
    consumer = a_reader_at(clients, topic, 0)
    seen = [shown(taken(consumer, 1)[0])]
    nothing = consumer.consume(1, 0.3)
    write(clients, topic, 1)
    seen += [shown(each) for each in taken(consumer, 2)]
    nothing += consumer.consume(1, 0.3)
    return [seen, nothing]


def a_marker_moves_the_end(clients: Clients, topic: str) -> list[object]:
    """The end that is told moves with markers, also where no record became readable."""
    create(clients, topic)
    consumer = a_reader_at(clients, topic, 0)
    seen = [shown(taken(consumer, 1)[0])]
    producer = begun(clients, topic)
    producer.produce(topic, b"dropped", b"k")
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    seen.append(shown(taken(consumer, 1)[0]))
    return seen


def a_pause_loses_nothing(clients: Clients, topic: str) -> list[object]:
    """After a pause, reading goes on after the last message that was taken."""
    create(clients, topic)
    write(clients, topic, 10)
    consumer = a_reader_at(clients, topic, 0)
    place = [TopicPartition(topic, 0)]
    seen = [shown(each) for each in taken(consumer, 3)]
    consumer.pause(place)
    nothing = consumer.consume(5, 0.3)
    consumer.resume(place)
    seen += [shown(each) for each in taken(consumer, 8)]
    return [seen, nothing]


def a_pause_at_the_end(clients: Clients, topic: str) -> list[object]:
    """Whether the end is told again after a pause."""
    create(clients, topic)
    write(clients, topic, 1)
    consumer = a_reader_at(clients, topic, 0)
    seen = [shown(each) for each in taken(consumer, 2)]
    consumer.pause([TopicPartition(topic, 0)])
    consumer.resume([TopicPartition(topic, 0)])
    return [seen, shown(taken(consumer, 1)[0])]


def partitions_come_and_go(clients: Clients, topic: str) -> list[object]:
    """Partitions are added, taken away, and added again from another offset."""
    create(clients, topic, 2)
    write(clients, topic, 4, 0)
    write(clients, topic, 2, 1)
    consumer = clients.consumer({})
    consumer.incremental_assign([TopicPartition(topic, 0, 2)])
    seen = [[shown(each) for each in taken(consumer, 3)]]
    consumer.incremental_assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    seen.append([shown(each) for each in taken(consumer, 3)])
    consumer.incremental_unassign([TopicPartition(topic, 0)])
    consumer.incremental_assign([TopicPartition(topic, 0, 3)])
    seen.append([shown(each) for each in taken(consumer, 2)])
    return [seen]


def assigned_twice(clients: Clients, topic: str) -> list[object]:
    """A partition that is assigned already cannot be assigned again, nor an unknown one taken away."""
    create(clients, topic, 2)
    consumer = clients.consumer({})
    place = [TopicPartition(topic, 0, 0)]
    return [
        tried(lambda: consumer.incremental_assign(place)),
        tried(lambda: consumer.incremental_assign(place)),
        tried(lambda: consumer.incremental_unassign([TopicPartition(topic, 1)])),
        tried(lambda: consumer.pause([TopicPartition(topic, 1)])),
        tried(lambda: consumer.resume([TopicPartition(topic, 1)])),
    ]


def a_reader_takes_what_there_is(clients: Clients, topic: str) -> list[object]:
    """``consume`` returns at most what it is asked for, and after its timeout what there is."""
    create(clients, topic)
    write(clients, topic, 5)
    consumer = a_reader_at(clients, topic, 0, enable_partition_eof=False)
    first = taken(consumer, 3)
    rest = consumer.consume(10, 3)
    return [[shown(each) for each in first], [shown(each) for each in rest], len(consumer.consume(3, 0))]


def a_reader_from_the_end(clients: Clients, topic: str) -> list[object]:
    """A reader that begins at the end sees what comes later."""
    create(clients, topic)
    write(clients, topic, 5)
    consumer = a_reader_at(clients, topic, OFFSET_END)
    seen = [shown(taken(consumer, 1)[0])]
    write(clients, topic, 1)
    return [seen, [shown(each) for each in taken(consumer, 2)]]


def an_offset_that_is_not_there(clients: Clients, topic: str) -> list[object]:
    """Beyond the end there is nothing to go on from; at the end there is."""
    create(clients, topic)
    write(clients, topic, 3)
    beyond, at_end = a_reader_at(clients, topic, 4), a_reader_at(clients, topic, 3)
    message = taken(beyond, 1)[0]
    more = beyond.consume(1, 0.5)
    return [shown(message), message.topic() == topic, told(message.error()), more, shown(taken(at_end, 1)[0])]


def deleted_records(clients: Clients, topic: str) -> list[object]:
    """Deleted records move the low watermark; who wants to go on before it is told, whoever begins does not care."""
    create(clients, topic)
    write(clients, topic, 5)
    steps = [delete_before(clients, topic, 3), low(clients, topic), ends(clients, topic)]
    steps += [delete_before(clients, topic, 9), delete_before(clients, topic, 1), low(clients, topic)]
    before = shown(taken(a_reader_at(clients, topic, 2), 1)[0])
    begins = [shown(each) for each in taken(a_reader_at(clients, topic, OFFSET_BEGINNING), 3)]
    steps += [delete_before(clients, topic, OFFSET_END), low(clients, topic), ends(clients, topic)]
    return [steps, before, begins, [shown(each) for each in taken(a_reader_at(clients, topic, OFFSET_BEGINNING), 1)]]


def a_compacted_topic_deletes_no_records(clients: Clients, topic: str) -> list[object]:
    """Only where the policy says delete, records are deleted before their time."""
    create(clients, topic, cleanup_policy="compact")
    write(clients, topic, 2)
    return [delete_before(clients, topic, 1), low(clients, topic)]


def a_compacted_topic_wants_keys(clients: Clients, topic: str) -> list[object]:
    """A record without a key is refused where its policy is compact."""
    create(clients, topic, cleanup_policy="compact")
    reports = Reports()
    producer = clients.producer({"on_delivery": reports.take})
    producer.produce(topic, b"v", None, 0)
    producer.flush(WAIT_S)
    return [reports.found, ends(clients, topic)]


def compaction(clients: Clients, topic: str) -> list[object]:
    """The last record of each key stays, at its offset; tombstones stay for a while; the low watermark stays."""
    create(clients, topic, 1, **_PATIENT)
    producer = clients.producer({"linger.ms": 5})
    written = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"c", None), (b"b", b"2"), (b"b", b"3")]
    for hour, (key, value) in enumerate(written):
        producer.produce(topic, value, key, 0, timestamp=_BEGAN_MS + 2 * hour * _HOUR_MS)
        producer.flush(WAIT_S)
    before = first_offsets(clients, topic)
    clients.clean(topic)
    return [before, first_offsets(clients, topic), low(clients, topic), ends(clients, topic)]


def compaction_of_transactions(clients: Clients, topic: str) -> list[object]:
    """Aborted records do not replace committed ones, and records of an open transaction stay, with all after them."""
    create(clients, topic, 1, **_PATIENT)
    producer = begun(clients, topic)
    hour = 0
    for value, is_committed in ((b"kept", True), (b"dropped", False)):
        for key in (b"a", b"b"):
            producer.produce(topic, value, key, 0, timestamp=_BEGAN_MS + hour * _HOUR_MS)
            producer.flush(WAIT_S)
            hour += 2
        if is_committed:
            producer.produce(topic, b"kept too", b"b", 0, timestamp=_BEGAN_MS + hour * _HOUR_MS)
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        producer.begin_transaction()
    other = clients.producer({})
    for value in (b"open", b"newest"):
        producer.produce(topic, value, b"a", 0, timestamp=_BEGAN_MS + hour * _HOUR_MS)
        producer.flush(WAIT_S)
        other.produce(topic, value, b"c", 0, timestamp=_BEGAN_MS + hour * _HOUR_MS)
        other.flush(WAIT_S)
        hour += 2
    clients.clean(topic)
    return [read(clients, topic), low(clients, topic), ends(clients, topic), ends(clients, topic, committed=True)]


def a_topic_made_anew(clients: Clients, topic: str) -> list[object]:
    """A topic of the same name is another one: its id differs, and its offsets begin at 0."""
    create(clients, topic)
    write(clients, topic, 5)
    admin = clients.admin()
    first = str(described(admin, topic).topic_id)
    outcome = tried(lambda: admin.delete_topics([topic])[topic].result(WAIT_S))
    clients.until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)
    create(clients, topic, 2)
    described_again = described(admin, topic)
    write(clients, topic, 1)
    return [
        outcome,
        str(described_again.topic_id) == first,
        len(described_again.partitions),
        ends(clients, topic, 2),
        read(clients, topic, 2),
    ]


def described(admin: Any, topic: str) -> Any:
    """Returns the description of a topic."""
    return admin.describe_topics(TopicCollection([topic]), request_timeout=WAIT_S)[topic].result(WAIT_S)


def make_anew(clients: Clients, topic: str) -> None:
    """Delete a topic, and create it again."""
    admin = clients.admin()
    admin.delete_topics([topic])[topic].result(WAIT_S)
    clients.until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)
    create(clients, topic)


def a_reader_within_a_topic_made_anew(clients: Clients, topic: str) -> list[object]:
    """A reader whose offset the new topic has, too, goes on there, and is told nothing."""
    create(clients, topic)
    write(clients, topic, 2)
    consumer = a_reader_at(clients, topic, 0)
    seen = [shown(each) for each in taken(consumer, 3)]
    place = [TopicPartition(topic, 0)]
    consumer.pause(place)  # it would be told that its offset is gone, should it ask while the topic is empty
    make_anew(clients, topic)
    write(clients, topic, 5)
    consumer.resume(place)
    return [seen, [shown(each) for each in taken(consumer, 4)]]


def a_producer_of_a_topic_made_anew(clients: Clients, topic: str) -> list[object]:
    """A producer goes on in the new topic, with and without a transaction."""
    create(clients, topic)
    reports = Reports()
    plain, producer = clients.producer({"on_delivery": reports.take}), begun(clients, topic)
    plain.produce(topic, b"0", b"k")
    plain.flush(WAIT_S)
    producer.produce(topic, b"1", b"k")
    producer.commit_transaction(WAIT_S)
    until_ended(clients, topic)
    make_anew(clients, topic)
    plain.produce(topic, b"2", b"k")
    flushed = plain.flush(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"3", b"k")
    outcome = tried(lambda: producer.commit_transaction(WAIT_S))
    until_ended(clients, topic)
    return [flushed, reports.found, outcome, read(clients, topic)]


def a_reader_of_a_topic_made_anew(clients: Clients, topic: str) -> list[object]:
    """A reader that is further than the new topic has an offset that is not there."""
    create(clients, topic)
    write(clients, topic, 5)
    consumer = a_reader_at(clients, topic, 0)
    seen = [shown(each) for each in taken(consumer, 6)]
    make_anew(clients, topic)
    write(clients, topic, 2)
    errors = [shown(taken(consumer, 1)[0])]
    while errors[-1][0] != "_AUTO_OFFSET_RESET" and len(errors) < 3:  # type: ignore[index]  # an event
        errors.append(shown(taken(consumer, 1)[0]))
    return [seen, errors[-1]]


def a_reader_of_a_deleted_topic(clients: Clients, topic: str) -> list[object]:
    """A reader whose topic is gone is told nothing: it looks like a topic without new records."""
    create(clients, topic)
    write(clients, topic, 1)
    consumer = a_reader_at(clients, topic, 0, topic_metadata_refresh_interval_ms=300)
    seen = [shown(each) for each in taken(consumer, 2)]
    clients.admin().delete_topics([topic])[topic].result(WAIT_S)
    return [seen, [shown(each) for each in consumer.consume(1, 2)]]


def a_topic_that_is_not_there(clients: Clients, topic: str) -> list[object]:
    """What each question about a missing topic is answered with."""
    admin = clients.admin()
    metadata = admin.list_topics(topic, timeout=WAIT_S).topics[topic]
    place, resource = TopicPartition(topic, 0), ConfigResource(ResourceType.TOPIC, topic)
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    reader = a_reader_at(clients, topic, 0, topic_metadata_refresh_interval_ms=300)
    return [
        told(metadata.error),
        len(metadata.partitions),
        tried(lambda: described(admin, topic)),
        tried(lambda: answered(clients, topic, {place: latest})),
        tried(lambda: admin.describe_configs([resource])[resource].result(WAIT_S)),
        tried(lambda: admin.delete_topics([topic])[topic].result(WAIT_S)),
        delete_before(clients, topic, 0),
        [shown(each) for each in reader.consume(1, 2)],
    ]


def records_for_a_missing_topic(clients: Clients, topic: str) -> list[object]:
    """Records wait for their topic for a while, and then fail; they go out if it appears."""
    reports = Reports()
    conf = {"on_delivery": reports.take, "topic.metadata.propagation.max.ms": 300, "linger.ms": 0}
    producer = clients.producer(conf)
    producer.produce(topic, b"v", b"k")
    flushed = producer.flush(WAIT_S)
    first, second = reports.found[:], Reports()
    refused = tried(lambda: producer.produce(topic, b"v", b"k"))
    late = clients.producer({"on_delivery": second.take})
    late.produce(topic, b"v", b"k")
    create(clients, topic)
    return [flushed, first, refused, late.flush(WAIT_S), second.found, ends(clients, topic)]


def a_partition_that_is_not_there(clients: Clients, topic: str) -> list[object]:
    """A producer refuses a partition that it knows not to be there."""
    create(clients, topic)
    write(clients, topic, 1)
    producer = clients.producer({})
    producer.produce(topic, b"v", b"k")
    producer.flush(WAIT_S)
    place = TopicPartition(topic, 3)
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    return [
        tried(lambda: producer.produce(topic, b"v", b"k", 3)),
        tried(lambda: answered(clients, topic, {place: latest})),
    ]


def added_partitions(clients: Clients, topic: str) -> list[object]:
    """A topic gets more partitions, which are empty, and never fewer; new clients see them."""
    create(clients, topic, 2)
    write(clients, topic, 2)
    admin = clients.admin()
    outcomes = [
        tried(lambda count=count: admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAIT_S))  # type: ignore[misc]  # a default binds the count
        for count in (4, 4, 3)
    ]
    clients.until(lambda: len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 4)
    write(clients, topic, 1, 3)
    return [outcomes, ends(clients, topic, 4), read(clients, topic, 4)]


def topics_that_cannot_be_made(clients: Clients, topic: str) -> list[object]:
    """What a broker says to a topic that it cannot make."""
    create(clients, topic + ".a_b")
    admin = clients.admin()
    wanted = [
        NewTopic(topic + ".a_b", 1, 1),
        NewTopic(topic + "_a.b", 1, 1),
        NewTopic(topic + "-1", 1, 1, config={"no.such.setting": "1"}),
        NewTopic(topic + "-2", 1, 3),
        NewTopic(topic + "-3", 0, 1),
    ]
    return [tried(lambda each=each: admin.create_topics([each])[each.topic].result(WAIT_S)) for each in wanted]  # type: ignore[misc]  # a default binds the topic


def settings_of_a_topic(clients: Clients, topic: str) -> list[object]:
    """Settings that were given, that a broker has by default, and that are changed."""
    create(clients, topic, cleanup_policy="compact", delete_retention_ms="1000")
    resource, admin = ConfigResource(ResourceType.TOPIC, topic), clients.admin()

    def found() -> dict[str, str]:
        entries = admin.describe_configs([resource])[resource].result(WAIT_S)
        names = ("cleanup.policy", "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
        more = ("segment.ms", "min.cleanable.dirty.ratio", "min.insync.replicas", "max.message.bytes", "retention.ms")
        return {name: entries[name].value for name in (*names, *more, "retention.bytes")}

    first = found()
    outcomes = [set_topic(clients, topic, "min.compaction.lag.ms", "5"), set_topic(clients, topic, "no.such", "5")]
    clients.until(lambda: found() != first)
    return [first, outcomes, found()]


TOPIC_SCRIPTS: Final[tuple[Callable[[Clients, str], list[object]], ...]] = (
    the_end_is_told_once,
    a_marker_moves_the_end,
    a_pause_loses_nothing,
    a_pause_at_the_end,
    partitions_come_and_go,
    assigned_twice,
    a_reader_takes_what_there_is,
    a_reader_from_the_end,
    an_offset_that_is_not_there,
    deleted_records,
    a_compacted_topic_deletes_no_records,
    a_compacted_topic_wants_keys,
    compaction,
    compaction_of_transactions,
    a_topic_made_anew,
    a_reader_within_a_topic_made_anew,
    a_producer_of_a_topic_made_anew,
    a_reader_of_a_topic_made_anew,
    a_reader_of_a_deleted_topic,
    a_topic_that_is_not_there,
    records_for_a_missing_topic,
    a_partition_that_is_not_there,
    added_partitions,
    topics_that_cannot_be_made,
    settings_of_a_topic,
)
