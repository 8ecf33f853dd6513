"""The world's Kafka keeps the promises of a real one: a script sees the same on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cdc.lab.stack import Kafka, KafkaBroker
from tests.integration.world.kafka_outage_scripts import OUTAGE_SCRIPTS
from tests.integration.world.kafka_producer_scripts import PRODUCER_SCRIPTS
from tests.integration.world.kafka_sides import BrokerClients, Clients, WorldClients
from tests.integration.world.kafka_topic_scripts import TOPIC_SCRIPTS
from tests.support.names import unique
from tests.world.kafka_alone import kafka_alone

Script = Callable[[Clients, str], list[object]]
SEEDS = range(20)


@pytest.fixture(scope="module")
def own_broker() -> Iterator[BrokerClients]:
    """A broker that scripts may end and start again. It soon looks for transactions that last too long."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with KafkaBroker.open(settings=settings, heap_mb=512, quick_start=True) as broker:
        yield BrokerClients(broker.bootstrap, broker.kill, broker.restart)


def the_same(script: Script, real: Clients) -> None:
    """Run a script on a broker once, and in the world with many orders of what happens there."""
    topic = unique("promise-")
    expected = script(real, topic)
    for seed in SEEDS:
        turns, cluster = kafka_alone(seed)
        assert script(WorldClients(turns, cluster), topic) == expected, f"seed {seed}"


@pytest.mark.parametrize("script", [*PRODUCER_SCRIPTS, *TOPIC_SCRIPTS], ids=lambda script: script.__name__)
def test_a_script_sees_the_same(script: Script, kafka: Kafka) -> None:
    the_same(script, BrokerClients(kafka.bootstrap))


@pytest.mark.parametrize("script", OUTAGE_SCRIPTS, ids=lambda script: script.__name__)
def test_an_outage_looks_the_same(script: Script, own_broker: BrokerClients) -> None:
    the_same(script, own_broker)
