"""Relation definitions as ``{name}.__schemas`` holds them, in the order in which they were last used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.contract.schema import parse_schema
from cdc.record import TableSchema
from cdc.replay.bounded import partitions_of, read_to_end


def read_definitions(options: Mapping[str, Any], topic: str) -> list[TableSchema]:
    """Every definition, that which was used last at the end.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        topic: the schemas topic; it has one partition.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers.
        DecodeError: a record is not of this contract.
    """
    newest: dict[bytes, TableSchema] = {}
    for record in read_to_end(options, partitions_of(options, topic)):
        if record.key is not None and record.value is not None:
            newest.pop(record.key, None)
            newest[record.key] = parse_schema(record.value)
    return list(newest.values())
