"""The history of a configuration topic: every version of every setting, in ``<topic>.history``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from cdc.base.errors import TopicRefused
from cdc.contract.naming import history_topic as history_of
from cdc.contract.ports import StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_topic
from cdc.kafka.replay.client import TopicMissing


class ConfigVersion(NamedTuple):
    """One version of a setting.

    Attributes:
        name: the setting's name.
        version: numbers the setting's changes from 1, deletes included; no number is used twice.
        value: JSON; None when the setting was deleted.
        at: when it was written, by the writer's clock.
        by: who wrote it, as given to ``ConfigWriter``.
    """

    name: str
    version: int
    value: bytes | None
    at: str
    by: str


def version_header(version: int) -> bytes:
    """Returns the header of a record of the configuration topic."""
    return orjson.dumps({"version": version})


def version_in(header: bytes) -> int:
    """Returns the version in a record's header; 0 if another program wrote the record."""
    try:
        return int(orjson.loads(header)["version"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0


def history_value(version: int, value: bytes | None, by: str) -> bytes:
    """Returns the value of a record of the history."""
    content = None if value is None else orjson.Fragment(value)
    return orjson.dumps({"version": version, "at": datetime.now(UTC).isoformat(), "by": by, "value": content})


def read_history(options: Mapping[str, Any], topic: str, name: str | None = None) -> list[ConfigVersion]:
    """Returns the versions of one setting, or of all, oldest first. Empty when there is no history.

    Args:
        options: librdkafka settings.
        topic: the configuration topic.
        name: the setting's name; None for all.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not read the history, or another program wrote to it.
    """
    try:
        records = read_topic(BrokerAdmin(options), history_of(topic))
    except TopicMissing:
        return []
    wanted = None if name is None else name.encode()
    return [_version(each) for each in records if each.key is not None and wanted in (None, each.key)]


def _version(record: StoredRecord) -> ConfigVersion:
    try:
        content = orjson.loads(record.value or b"")
        value = None if content["value"] is None else orjson.dumps(content["value"])
        name = (record.key or b"").decode()
        return ConfigVersion(name, int(content["version"]), value, str(content["at"]), str(content["by"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise TopicRefused(
            f"offset {record.offset} of partition {record.partition} of {record.topic!r} does not hold a version of a "
            "setting",
            remedy="find out who else writes to this topic: only ConfigWriter may",
        ) from error
