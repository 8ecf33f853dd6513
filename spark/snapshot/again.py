"""Whether a record is still in the log: asked again when everything is read."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.spark.errors import TopicUnreadable
from cdc.spark.kafka_options import client_options

_TIMEOUT_S: Final = 30.0


def is_there(kafka: KafkaSettings, topic: str, partition: int, offset: int) -> bool:
    """Whether the record at ``offset``, which was there, has not been erased since.

    Raises:
        TopicUnreadable: nothing came in time.
    """
    consumer = Consumer(
        {
            **client_options(kafka),
            "group.id": "cdc-spark-driver",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return bool(message.offset() == offset)
    except KafkaException as error:
        raise TopicUnreadable(
            f"topic {topic}: {error.args[0].str()}", remedy="see whether the brokers are well"
        ) from error
    finally:
        consumer.close()
    raise TopicUnreadable(
        f"topic {topic}, partition {partition}: no record came from offset {offset}",
        remedy="see whether the brokers are well, then try again",
    )
