"""Reads the relation definitions in ``{name}.__schemas``, in the order in which they were last used."""

from __future__ import annotations

from cdc.contract.record import TableSchema
from cdc.contract.schema import parse_schema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_topic


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
