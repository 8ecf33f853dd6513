"""Maps tables to topic names, so that the name tells the table and two tables never share a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from cdc.base.errors import ConfigError
from cdc.base.table_names import qualified

MAX_TOPIC_CHARS: Final = 249
"""Kafka's own limit (``org.apache.kafka.common.internals.Topic``): a topic's name and a suffix must fit a file name."""

_LEGAL_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_NOT_PLAIN: Final = re.compile(rb"[^A-Za-z0-9_]")


def topic_name(name: str, namespace: str, table: str, names: Mapping[str, str] | None = None) -> str:
    """Returns the state topic of a table: ``{name}.{schema}.{table}``, or what the configuration says instead.

    Args:
        name: the configuration's ``name``.
        namespace: the table's schema.
        table: the table.
        names: the configuration's ``topics.names``, ``schema.table`` → topic.

    Raises:
        ConfigError: the name is longer than Kafka allows, or the configured name has characters that it does not allow.
    """
    source = qualified(namespace, table)
    configured = (names or {}).get(source)
    topic = configured or f"{name}.{_escape(namespace)}.{_escape(table)}"
    if configured and (not _LEGAL_TOPIC.fullmatch(configured) or configured in (".", "..")):
        raise ConfigError(
            f"topics.names: invalid topic name {configured!r} (for {source})",
            remedy="use only letters, digits, '.', '_' and '-'",
        )
    if len(topic) > MAX_TOPIC_CHARS:
        raise ConfigError(
            f"topic name of table {source} has {len(topic)} characters, Kafka allows {MAX_TOPIC_CHARS}",
            remedy=f"give the topic a shorter name in the configuration, topics.names: {{{source!r}: shorter-name}}",
        )
    return topic


def is_topic_name(text: str) -> bool:
    """Whether Kafka allows a topic of this name."""
    return bool(_LEGAL_TOPIC.fullmatch(text)) and len(text) <= MAX_TOPIC_CHARS and text not in (".", "..")


def progress_topic(name: str) -> str:
    return f"{name}.__progress"


def schemas_topic(name: str) -> str:
    return f"{name}.__schemas"


def quarantine_topic(name: str) -> str:
    return f"{name}.__quarantine"


SubjectStrategy: TypeAlias = Literal["topic", "record", "topic-record"]
"""What names the subjects of a registry: Confluent's TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy."""


def subject(
    topic: str,
    record: str = "",
    strategy: SubjectStrategy = "topic",
    context: str | None = None,
    part: Literal["key", "value"] = "value",
) -> str:
    """Returns the registry's subject for the values, or for the keys, of a topic.

    Args:
        topic: the state topic.
        record: the name of the record in the schema; needed by every strategy but ``topic``.
        strategy: what names subjects.
        context: the registry's context that holds the subject; None for the default one.
        part: which part of the records the schema describes.
    """
    names = {"topic": f"{topic}-{part}", "record": record, "topic-record": f"{topic}-{record}"}
    return names[strategy] if context is None else f":.{context}:{names[strategy]}"


def history_topic(topic: str) -> str:
    """Returns the name of a state topic's history topic.

    Raises:
        ConfigError: the name is longer than Kafka allows.
    """
    history = f"{topic}.history"
    if len(history) > MAX_TOPIC_CHARS:
        raise ConfigError(
            f"topic name {history!r} has {len(history)} characters, Kafka allows {MAX_TOPIC_CHARS}",
            remedy="give the table a shorter topic under topics.names, or take it out of topics.history",
        )
    return history


def collisions(topics: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """Returns pairs of one of ``topics`` and one of ``others`` whose names Kafka treats as equal.

    Kafka names its metrics after topics, with ``_`` for ``.``, and refuses a topic whose name differs only in these
    (``org.apache.kafka.common.internals.Topic.hasCollision``).
    """
    by_metric: dict[str, list[str]] = {}
    for other in others:
        by_metric.setdefault(other.replace(".", "_"), []).append(other)
    found = ((topic, other) for topic in topics for other in by_metric.get(topic.replace(".", "_"), ()))
    return [(topic, other) for topic, other in found if topic != other]


def _escape(identifier: str) -> str:
    return _NOT_PLAIN.sub(lambda match: b"-%02X" % match[0][0], identifier.encode()).decode()
