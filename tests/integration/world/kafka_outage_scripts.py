"""Scripts about brokers that are away and transactions that last too long: the same is seen on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from tests.integration.world.kafka_producer_scripts import Reports, begun, create
from tests.integration.world.kafka_sides import WAIT_S, Clients, ends, read, shown, taken, told, tried, until_ended

_SHORT_S: Final = 1.0


def a_transaction_that_lasts_too_long(clients: Clients, topic: str) -> list[object]:
    """A transaction that is open for longer than its timeout is aborted, and its producer fenced."""
    create(clients, topic)
    producer = begun(clients, topic, {"transaction.timeout.ms": 1_000})
    producer.produce(topic, b"v", b"k")
    producer.flush(WAIT_S)
    clients.until(lambda: ends(clients, topic) == [2])
    outcomes = [
        tried(lambda: producer.commit_transaction(WAIT_S)),
        tried(lambda: producer.begin_transaction()),
        tried(lambda: producer.produce(topic, b"v", b"k")),
    ]
    newer = begun(clients, topic)
    newer.produce(topic, b"newer", b"k")
    newer.commit_transaction(WAIT_S)
    until_ended(clients, topic)
    return [outcomes, read(clients, topic)]


def a_commit_goes_on(clients: Clients, topic: str) -> list[object]:
    """A commit that timed out may be called again, and goes on."""
    create(clients, topic)
    producer = begun(clients, topic)
    producer.produce(topic, b"before", b"a")
    producer.flush(WAIT_S)
    clients.take_away()
    producer.produce(topic, b"meanwhile", b"b")
    outcomes = [
        producer.flush(_SHORT_S) > 0,
        tried(lambda: producer.commit_transaction(_SHORT_S)),
        tried(lambda: producer.produce(topic, b"too late", b"c")),
        tried(lambda: producer.begin_transaction()),
        tried(lambda: producer.abort_transaction(_SHORT_S)),
    ]
    clients.bring_back()
    outcomes.append(tried(lambda: producer.commit_transaction(WAIT_S)))
    until_ended(clients, topic)
    return [outcomes, read(clients, topic)]


def an_abort_goes_on(clients: Clients, topic: str) -> list[object]:
    """An abort that timed out may be called again, too."""
    create(clients, topic)
    reports = Reports()
    producer = begun(clients, topic, {"on_delivery": reports.take})
    producer.produce(topic, b"before", b"a")
    producer.flush(WAIT_S)
    clients.take_away()
    outcomes = [tried(lambda: producer.abort_transaction(_SHORT_S))]
    clients.bring_back()
    outcomes.append(tried(lambda: producer.abort_transaction(WAIT_S)))
    outcomes.append(tried(lambda: producer.begin_transaction()))
    until_ended(clients, topic)
    return [outcomes, reports.found, ends(clients, topic), read(clients, topic)]


def a_producer_that_cannot_begin(clients: Clients, topic: str) -> list[object]:
    """``init_transactions`` may be called again after a timeout."""
    create(clients, topic)
    clients_made = clients.producer({"transactional.id": f"id-{topic}"})
    clients.take_away()
    outcomes = [tried(lambda: clients_made.init_transactions(_SHORT_S))]
    clients.bring_back()
    outcomes.append(tried(lambda: clients_made.init_transactions(WAIT_S)))
    outcomes.append(tried(lambda: clients_made.begin_transaction()))
    return outcomes


def records_wait_for_brokers(clients: Clients, topic: str) -> list[object]:
    """What was queued while brokers were away is stored once, in order, when they are back."""
    create(clients, topic)
    reports = Reports()
    producer = clients.producer({"on_delivery": reports.take, "linger.ms": 0})
    producer.produce(topic, b"0", b"k")
    producer.flush(WAIT_S)
    clients.take_away()
    for number in range(1, 4):
        producer.produce(topic, b"%d" % number, b"k")
    left = producer.flush(_SHORT_S) > 0
    clients.bring_back()
    return [left, producer.flush(WAIT_S), reports.found, read(clients, topic)]


def what_is_purged_meanwhile(clients: Clients, topic: str) -> list[object]:
    """What is purged while brokers are away is reported, and never arrives if it never left."""
    create(clients, topic)
    reports = Reports()
    producer = clients.producer({"on_delivery": reports.take, "linger.ms": 0})
    producer.produce(topic, b"0", b"k")
    producer.flush(WAIT_S)
    clients.take_away()
    producer.flush(_SHORT_S)
    producer.produce(topic, b"1", b"k")
    left = producer.flush(_SHORT_S) > 0
    producer.purge()
    producer.poll(0)
    clients.bring_back()
    return [left, reports.found, read(clients, topic)]


def messages_that_time_out(clients: Clients, topic: str) -> list[object]:
    """A message that waits for longer than ``message.timeout.ms`` fails, and its transaction has to be aborted."""
    create(clients, topic)
    reports = Reports()
    conf = {"on_delivery": reports.take, "message.timeout.ms": 500, "linger.ms": 0}
    plain, producer = clients.producer(conf), begun(clients, topic, conf)
    producer.produce(topic, b"0", b"k")
    producer.flush(WAIT_S)
    clients.take_away()
    producer.produce(topic, b"1", b"k")
    clients.until(lambda: producer.poll(0.1) >= 0 and len(reports.found) == 2)
    plain.produce(topic, b"2", b"k")
    clients.until(lambda: plain.poll(0.1) >= 0 and len(reports.found) == 3)
    outcomes = [
        tried(lambda: producer.produce(topic, b"v", b"k")),
        tried(lambda: producer.commit_transaction(_SHORT_S)),
    ]
    clients.bring_back()
    outcomes.append(tried(lambda: producer.abort_transaction(WAIT_S)))
    until_ended(clients, topic)
    return [reports.found, outcomes, read(clients, topic)]


def questions_time_out(clients: Clients, topic: str) -> list[object]:
    """Questions about topics fail while brokers are away, and ``error_cb`` hears why; then they are answered."""
    create(clients, topic)
    heard: set[object] = set()
    admin, consumer = clients.admin(), clients.consumer({"error_cb": lambda error: heard.add(told(error))})
    admin.list_topics(timeout=WAIT_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = [shown(taken(consumer, 1)[0])]
    place = TopicPartition(topic, 0)
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    resource, short = ConfigResource(ResourceType.TOPIC, topic), {"request_timeout": _SHORT_S}
    clients.take_away()

    def has_heard() -> bool:
        consumer.consume(1, 0.1)
        return len(heard) >= 2

    clients.until(has_heard)
    outcomes: list[Any] = [
        tried(lambda: admin.list_topics(topic, timeout=_SHORT_S)),
        tried(lambda: consumer.list_topics(topic, timeout=_SHORT_S)),
        tried(lambda: admin.list_offsets({place: latest}, request_timeout=_SHORT_S)[place].result(WAIT_S)),
        tried(lambda: admin.describe_topics(TopicCollection([topic]), **short)[topic].result(WAIT_S)),
        tried(lambda: admin.describe_configs([resource], **short)[resource].result(WAIT_S)),
        tried(lambda: admin.create_topics([NewTopic("no", 1, 1)], **short)["no"].result(WAIT_S)),
    ]
    clients.bring_back()
    producer = clients.producer({})
    producer.produce(topic, b"v", b"k")
    producer.flush(WAIT_S)
    seen += [shown(each) for each in taken(consumer, 2)]
    return [outcomes, sorted(map(str, heard)), seen]


OUTAGE_SCRIPTS: Final[tuple[Callable[[Clients, str], list[object]], ...]] = (
    a_transaction_that_lasts_too_long,
    a_commit_goes_on,
    an_abort_goes_on,
    a_producer_that_cannot_begin,
    records_wait_for_brokers,
    what_is_purged_meanwhile,
    messages_that_time_out,
    questions_time_out,
)
