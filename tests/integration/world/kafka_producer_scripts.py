"""Scripts about producers and their transactions: each returns what it saw, which is the same on both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from tests.integration.world.kafka_sides import (
    WAIT_S,
    Clients,
    ends,
    first_offsets,
    read,
    taken,
    told,
    tried,
    until_ended,
)


def create(clients: Clients, topic: str, count: int = 1, **settings: str) -> None:
    """Create a topic, and wait until the brokers know it."""
    admin = clients.admin()
    config = {name.replace("_", "."): value for name, value in settings.items()}
    admin.create_topics([NewTopic(topic, count, 1, config=config)])[topic].result(WAIT_S)
    clients.until(lambda: topic in admin.list_topics(timeout=WAIT_S).topics)


def begun(clients: Clients, topic: str, conf: Mapping[str, Any] | None = None) -> Any:
    """Returns a producer with the topic's transactional id that has taken over and begun a transaction."""
    producer = clients.producer({"transactional.id": f"id-{topic}", **(conf or {})})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    return producer


class Reports:
    """Delivery reports, as a list of what they say."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def take(self, error: Any, message: Any) -> None:
        self.found.append((told(error), message.partition(), message.offset(), message.key(), message.value()[:9]))


def until_fatal(clients: Clients, producer: Any, reports: Reports, count: int) -> object:
    """Returns the error that ``poll`` raises, once there are so many reports."""
    outcomes: list[object] = []

    def is_told() -> bool:
        outcomes.append(tried(lambda: producer.poll(0.1)))
        return len(reports.found) >= count and set(outcomes) != {"done"}

    clients.until(is_told)
    return next(each for each in outcomes if each != "done")


def offsets_in_order(clients: Clients, topic: str) -> list[object]:
    """A partition gives offsets in the order of one producer."""
    create(clients, topic)
    reports = Reports()
    producer = clients.producer({"on_delivery": reports.take})
    for number in range(100):
        producer.produce(topic, b"%d" % number, b"key")
    return [producer.flush(WAIT_S), reports.found, ends(clients, topic), read(clients, topic)]


def keys_have_partitions(clients: Clients, topic: str) -> list[object]:
    """A key's partition is that of Java's clients (murmur2)."""
    create(clients, topic, 7)
    reports = Reports()
    producer = clients.producer({"on_delivery": reports.take})
    for key in [b"", b"a", "zürich".encode(), *(b"key-%d" % number for number in range(60))]:
        producer.produce(topic, b"v", key)
    producer.flush(WAIT_S)
    return [*sorted((key, partition) for _, partition, _, key, _ in reports.found)]


def what_a_message_carries(clients: Clients, topic: str) -> list[object]:
    """Headers, timestamps, empty and missing keys and values arrive as they were sent."""
    create(clients, topic)
    producer = clients.producer({})
    at_ms = 1_700_000_000_123
    producer.produce(topic, b"value", b"key", 0, None, None, at_ms, [("cdc", b"header"), ("cdc", b""), ("none", None)])
    producer.produce(topic, None, b"tombstone", 0, timestamp=at_ms)
    producer.produce(topic, b"", b"", 0, timestamp=at_ms, headers=[])
    producer.produce(topic, "text", None, 0, timestamp=at_ms)
    producer.flush(WAIT_S)
    consumer = clients.consumer({})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = taken(consumer, 4)
    consumer.close()
    return [
        (each.topic(), each.key(), each.value(), each.headers(), each.timestamp(), len(each), told(each.error()))
        for each in messages
    ]


def a_commit_takes_an_offset(clients: Clients, topic: str) -> list[object]:
    """The marker of a commit takes an offset in each partition of the transaction, and in no other."""
    create(clients, topic, 3)
    producer = begun(clients, topic)
    for partition in (0, 0, 1):
        producer.produce(topic, b"v", b"k", partition)
    producer.commit_transaction(WAIT_S)
    until_ended(clients, topic, 3)
    first = ends(clients, topic, 3)
    producer.begin_transaction()
    producer.produce(topic, b"w", b"k", 0)
    producer.commit_transaction(WAIT_S)
    until_ended(clients, topic, 3)
    return [first, ends(clients, topic, 3), read(clients, topic, 3)]


def aborted_records_are_skipped(clients: Clients, topic: str) -> list[object]:
    """A reader of committed records skips aborted ones; its position is past them and the marker."""
    create(clients, topic)
    producer = begun(clients, topic)
    producer.produce(topic, b"dropped", b"a")
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"kept", b"a")
    producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"dropped too", b"a")
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    until_ended(clients, topic)
    return [ends(clients, topic), read(clients, topic), first_offsets(clients, topic)]


def an_abort_drops_what_is_queued(clients: Clients, topic: str) -> list[object]:
    """Records that have not left when the transaction is aborted never arrive, and their reports say so."""
    create(clients, topic)
    reports = Reports()
    producer = begun(clients, topic, {"linger.ms": 30_000, "on_delivery": reports.take})
    producer.produce(topic, b"v", b"k")
    producer.abort_transaction(WAIT_S)
    producer.poll(0)
    return [len(producer), reports.found, ends(clients, topic)]


def an_empty_transaction_leaves_nothing(clients: Clients, topic: str) -> list[object]:
    """Neither a commit nor an abort without records takes an offset."""
    create(clients, topic)
    producer = begun(clients, topic)
    producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    producer.abort_transaction(WAIT_S)
    return [ends(clients, topic), read(clients, topic)]


def an_open_transaction_holds_readers(clients: Clients, topic: str) -> list[object]:
    """What lies after the first record of an open transaction is not read, whoever wrote it."""
    create(clients, topic)
    other = clients.producer({})
    other.produce(topic, b"before", b"a")
    other.flush(WAIT_S)
    producer = begun(clients, topic)
    producer.produce(topic, b"open", b"b")
    producer.flush(WAIT_S)
    other.produce(topic, b"after", b"c")
    other.flush(WAIT_S)
    held = [ends(clients, topic), ends(clients, topic, committed=True), read(clients, topic)]
    everything = first_offsets(clients, topic)
    producer.commit_transaction(WAIT_S)
    until_ended(clients, topic)
    return [held, everything, read(clients, topic)]


def transactions_of_two(clients: Clients, topic: str) -> list[object]:
    """Transactions interleave in a partition, and each ends by itself: one is aborted, the other committed."""
    create(clients, topic)
    one, two = begun(clients, topic), begun(clients, topic, {"transactional.id": f"other-{topic}"})
    for number in range(3):
        one.produce(topic, b"one", b"%d" % number)
        one.flush(WAIT_S)
        two.produce(topic, b"two", b"%d" % number)
        two.flush(WAIT_S)
    two.commit_transaction(WAIT_S)
    clients.until(lambda: ends(clients, topic) == [7])
    held = [ends(clients, topic, committed=True), read(clients, topic)]
    one.abort_transaction(WAIT_S)
    until_ended(clients, topic)
    return [held, ends(clients, topic), read(clients, topic)]


def who_takes_over_aborts(clients: Clients, topic: str) -> list[object]:
    """``init_transactions`` aborts what the former producer left open, and fences it for good."""
    create(clients, topic)
    reports = Reports()
    former = begun(clients, topic, {"on_delivery": reports.take})
    former.produce(topic, b"left open", b"a")
    former.flush(WAIT_S)
    newer = begun(clients, topic)
    after = ends(clients, topic)
    former.produce(topic, b"of a zombie", b"b")
    polled = until_fatal(clients, former, reports, 2)
    outcomes = [
        tried(lambda: former.commit_transaction(WAIT_S)),
        tried(lambda: former.begin_transaction()),
        tried(lambda: former.produce(topic, b"v", b"c")),
        tried(lambda: former.abort_transaction(WAIT_S)),
        tried(lambda: former.poll(0)),
        len(former),
    ]
    newer.produce(topic, b"of the newer", b"a")
    newer.commit_transaction(WAIT_S)
    until_ended(clients, topic)
    return [after, polled, reports.found, outcomes, read(clients, topic), first_offsets(clients, topic)]


def fenced_before_its_first_record(clients: Clients, topic: str) -> list[object]:
    """A zombie learns that it is fenced when it adds a partition to a transaction."""
    create(clients, topic)
    reports = Reports()
    former = clients.producer({"transactional.id": f"id-{topic}", "on_delivery": reports.take})
    former.init_transactions(WAIT_S)
    begun(clients, topic)
    former.begin_transaction()
    former.produce(topic, b"v", b"k")
    outcome = tried(lambda: former.commit_transaction(WAIT_S))
    former.purge()
    # Not how many messages wait: the client counts the errors that it has not told yet among them
    clients.until(lambda: tried(lambda: former.poll(0.1)) and reports.found)
    return [outcome, reports.found, ends(clients, topic)]


def fenced_with_an_empty_transaction(clients: Clients, topic: str) -> list[object]:
    """A zombie whose transaction is empty does not hear that it is fenced."""
    create(clients, topic)
    former = begun(clients, topic)
    begun(clients, topic)
    return [tried(lambda: former.commit_transaction(WAIT_S)), tried(lambda: former.begin_transaction())]


def fenced_between_records_and_commit(clients: Clients, topic: str) -> list[object]:
    """A zombie whose records all arrived learns at the commit that they are aborted."""
    create(clients, topic)
    former = begun(clients, topic)
    former.produce(topic, b"v", b"k")
    former.flush(WAIT_S)
    begun(clients, topic)
    outcomes = [
        tried(lambda: former.commit_transaction(WAIT_S)),
        tried(lambda: former.abort_transaction(WAIT_S)),
        tried(lambda: former.poll(0)),
        tried(lambda: former.poll(0)),
    ]
    return [outcomes, ends(clients, topic), read(clients, topic)]


def calls_out_of_turn(clients: Clients, topic: str) -> list[object]:
    """Calls that do not fit the state of the transaction are refused, and change nothing."""
    create(clients, topic)
    producer = clients.producer({"transactional.id": f"id-{topic}"})
    calls: list[Callable[[], object]] = [
        lambda: producer.begin_transaction(),
        lambda: producer.produce(topic, b"v", b"k"),
        lambda: producer.commit_transaction(WAIT_S),
        lambda: producer.init_transactions(WAIT_S),
        lambda: producer.init_transactions(WAIT_S),
        lambda: producer.produce(topic, b"v", b"k"),
        lambda: producer.commit_transaction(WAIT_S),
        lambda: producer.abort_transaction(WAIT_S),
        lambda: producer.begin_transaction(),
        lambda: producer.begin_transaction(),
        lambda: producer.produce(topic, b"v", b"k"),
        lambda: producer.commit_transaction(WAIT_S),
        lambda: producer.commit_transaction(WAIT_S),
    ]
    return [tried(each) for each in calls]


def too_large_for_the_client(clients: Clients, topic: str) -> list[object]:
    """A client refuses what is larger than its own limit, at once; the transaction goes on."""
    create(clients, topic)
    producer = begun(clients, topic, {"message.max.bytes": 2_000})
    sizes = [tried(lambda size=size: producer.produce(topic, b"x" * size, b"k")) for size in (3_000, 1_900)]  # type: ignore[misc]  # a default binds the size
    producer.commit_transaction(WAIT_S)
    until_ended(clients, topic)
    return [sizes, ends(clients, topic)]


def too_large_for_the_topic(clients: Clients, topic: str) -> list[object]:
    """A broker refuses the batch, and the transaction has to be aborted; the next producer takes over."""
    create(clients, topic, max_message_bytes="2000")
    reports = Reports()
    producer = begun(clients, topic, {"on_delivery": reports.take})
    producer.produce(topic, b"x" * 3_000, b"k")
    outcomes: list[object] = [producer.flush(WAIT_S)]
    outcomes += [
        tried(lambda: producer.produce(topic, b"v", b"k")),
        tried(lambda: producer.commit_transaction(WAIT_S)),
        tried(lambda: producer.begin_transaction()),
        tried(lambda: producer.abort_transaction(WAIT_S)),
    ]
    newer = begun(clients, topic)
    newer.produce(topic, b"small", b"k")
    newer.commit_transaction(WAIT_S)
    until_ended(clients, topic)
    return [outcomes, reports.found, ends(clients, topic), read(clients, topic)]


def too_large_without_a_gap(clients: Clients, topic: str) -> list[object]:
    """With ``enable.gapless.guarantee``, a refused record ends the producer for good."""
    create(clients, topic, max_message_bytes="2000")
    reports = Reports()
    producer = clients.producer(
        {"enable.gapless.guarantee": True, "message.timeout.ms": 0, "on_delivery": reports.take, "linger.ms": 0}
    )
    producer.produce(topic, b"x" * 3_000, b"k")
    polled = until_fatal(clients, producer, reports, 1)
    return [polled, reports.found, tried(lambda: producer.produce(topic, b"v", b"k")), ends(clients, topic)]


def a_purge_empties_the_queue(clients: Clients, topic: str) -> list[object]:
    """What is purged from the queue is reported, in any order, and counts until the report is taken."""
    create(clients, topic)
    reports = Reports()
    producer = clients.producer({"linger.ms": 60_000, "on_delivery": reports.take})
    for number in range(3):
        producer.produce(topic, b"%d" % number, b"k", 0)
    queued = len(producer)
    producer.purge()
    clients.until(lambda: producer.poll(0.1) or not len(producer))
    # librdkafka has two queues: what its thread has taken over for the broker is reported after what it has not
    return [queued, len(producer), sorted(reports.found, key=str), ends(clients, topic)]


def a_full_queue(clients: Clients, topic: str) -> list[object]:
    """A full queue takes nothing more until reports are taken."""
    create(clients, topic)
    reports = Reports()
    producer = clients.producer({"linger.ms": 60_000, "queue.buffering.max.messages": 3, "on_delivery": reports.take})
    outcomes = [tried(lambda: producer.produce(topic, b"v", b"k", 0)) for _ in range(5)]
    producer.flush(WAIT_S)
    outcomes.append(tried(lambda: producer.produce(topic, b"v", b"k", 0)))
    return [outcomes, producer.flush(WAIT_S), len(reports.found)]


def reports_of_errors_only(clients: Clients, topic: str) -> list[object]:
    """With ``delivery.report.only.error``, a message that arrived leaves no report behind."""
    create(clients, topic)
    reports = Reports()
    producer = clients.producer({"delivery.report.only.error": True, "on_delivery": reports.take})
    producer.produce(topic, b"v", b"k")
    clients.until(lambda: producer.poll(0.1) or not len(producer))
    return [len(producer), reports.found, ends(clients, topic)]


def a_report_of_its_own(clients: Clients, topic: str) -> list[object]:
    """A callback given with the message takes the place of the producer's."""
    create(clients, topic)
    general, own = Reports(), Reports()
    producer = clients.producer({"on_delivery": general.take})
    producer.produce(topic, b"a", b"k", -1, own.take, None, 0, [("cdc", b"h")])
    producer.produce(topic, b"b", b"k")
    producer.flush(WAIT_S)
    return [own.found, general.found]


PRODUCER_SCRIPTS: Final[tuple[Callable[[Clients, str], list[object]], ...]] = (
    offsets_in_order,
    keys_have_partitions,
    what_a_message_carries,
    a_commit_takes_an_offset,
    aborted_records_are_skipped,
    an_abort_drops_what_is_queued,
    an_empty_transaction_leaves_nothing,
    an_open_transaction_holds_readers,
    transactions_of_two,
    who_takes_over_aborts,
    fenced_before_its_first_record,
    fenced_with_an_empty_transaction,
    fenced_between_records_and_commit,
    calls_out_of_turn,
    too_large_for_the_client,
    too_large_for_the_topic,
    too_large_without_a_gap,
    a_purge_empties_the_queue,
    a_full_queue,
    reports_of_errors_only,
    a_report_of_its_own,
)
