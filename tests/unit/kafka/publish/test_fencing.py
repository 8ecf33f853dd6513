"""Another bridge took over only where one did: Kafka says the same of a transaction that was open for too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc.base.errors import FencedError, TopicUnavailable
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.transactional import PRODUCER_SETTINGS

FENCED = KafkaException(KafkaError(KafkaError._FENCED))


@pytest.fixture
def publisher() -> Iterator[KafkaPublisher]:
    made = KafkaPublisher({"bootstrap.servers": "127.0.0.1:1"}, transactional_id="cdc-shop", max_message_bytes=1_000)
    yield made
    made.close()


def test_fenced_soon_after_the_transaction_began_somebody_took_over(publisher: KafkaPublisher) -> None:
    assert isinstance(publisher._error("commit_transaction", FENCED), FencedError)


def test_fenced_behind_the_timeout_nobody_need_have(publisher: KafkaPublisher) -> None:
    """A bridge alone ended with exit code 5, and the advice to stop one of the two."""
    publisher._began_at -= PRODUCER_SETTINGS["transaction.timeout.ms"] / 1_000 + 1
    error = publisher._error("commit_transaction", FENCED)
    assert isinstance(error, TopicUnavailable)
    assert "open for more than 60 s" in error.message


def test_a_progress_beside_rows_is_a_kafka_transaction_of_its_own() -> None:
    """Who had published nothing but rows for a minute, and was fenced, took its last one for open all the time."""
    options = {"bootstrap.servers": "127.0.0.1:1"}
    with closing(KafkaPublisher(options, transactional_id="cdc-shop", max_message_bytes=1_000)) as publisher:
        publisher._began_at -= PRODUCER_SETTINGS["transaction.timeout.ms"] / 1_000 + 1
        publisher.write("t", b"progress", b"1")
        assert isinstance(publisher._error("commit_transaction", FENCED), FencedError)
