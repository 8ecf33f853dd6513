"""Reads what the bridge keeps on record: relation definitions in ``{name}.__schemas``, and rows in quarantine."""

from __future__ import annotations

from cdc.contract.quarantine import QuarantineEntry, parse_entry
from cdc.contract.record import TableSchema
from cdc.contract.schema import parse_schema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_to_end, read_topic
from cdc.kafka.replay.client import topic_partitions


def read_definitions(admin: BrokerAdmin, topic: str) -> list[TableSchema]:
    """Read all definitions, ordered by their last use: the most recent one comes last.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topic: the schemas topic; it has one partition.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
        DecodeError: a record does not follow this contract.
    """
    newest: dict[bytes, TableSchema] = {}
    for record in read_topic(admin, topic):
        if record.key is not None and record.value is not None:
            newest.pop(record.key, None)
            newest[record.key] = parse_schema(record.value)
    return list(newest.values())


def read_entries(admin: BrokerAdmin, topic: str) -> list[QuarantineEntry]:
    """Read the entries of the quarantine topic, in the order in which they were written; none if there is no topic.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topic: the quarantine topic.

    Raises:
        TopicRefused: we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
        DecodeError: a record is not an entry.
    """
    values: dict[bytes, bytes] = {}
    for record in read_to_end(admin, topic_partitions(admin, topic)):
        if record.key is not None:
            values.pop(record.key, None)
            if record.value is not None:
                values[record.key] = record.value
    return [parse_entry(key, value) for key, value in values.items()]
