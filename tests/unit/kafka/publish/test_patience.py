"""Rows are waited for no longer than there is proof that no other bridge took over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from cdc.base.errors import TopicUnavailable
from cdc.base.lsn import LSN
from cdc.contract.header import INSERT, HeaderStamp
from cdc.contract.record import Ready
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, RowProducer
from tests.support.fake_broker import TOPIC, FakeBroker

ROW: Ready = (TOPIC, b"k", b"{}", HeaderStamp(LSN(9), 7, 0).header(INSERT, 1, "0" * 16), None)


@pytest.fixture
def publisher() -> Iterator[KafkaPublisher]:
    """Of a broker that takes no rows."""
    with closing(FakeBroker()) as broker:
        rows = RowProducer(broker.options, max_message_bytes=1_000_000)
        rows.connect()
        publisher = KafkaPublisher(broker.options, transactional_id="x", max_message_bytes=1_000_000, rows=rows)
        with closing(publisher) as made:
            yield made


def test_a_kafka_transaction_does_not_wait_for_rows_beyond_the_proof(publisher: KafkaPublisher) -> None:
    """Else they would arrive when the bridge that took over has looked at what is there."""
    publisher.proved(time.monotonic() - ROWS_PATIENCE_S)
    publisher.send_rows([ROW])
    began = time.monotonic()
    with pytest.raises(TopicUnavailable, match="did not take the rows"):
        publisher.produce(TOPIC, b"k", None, b"")
    assert time.monotonic() - began < ROWS_PATIENCE_S / 2


def test_nor_does_a_row_wait_for_the_first_one_of_its_partition(publisher: KafkaPublisher) -> None:
    publisher.proved(time.monotonic() - ROWS_PATIENCE_S)
    began = time.monotonic()
    with pytest.raises(TopicUnavailable, match="has not taken the rows"):
        publisher.send_rows([ROW, ROW])
    assert time.monotonic() - began < ROWS_PATIENCE_S / 2
