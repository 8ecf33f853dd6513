"""Checks single values, and values of different sections; each raises ``ValueError`` with what is allowed instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import SecretStr

from cdc.base.table_names import parts, qualified

MAX_IDENTIFIER_BYTES = 63
MIN_SALT = 16
MAX_TOPIC_NAME = 249
MAX_RETENTION_MS = 3_155_760_000_000
MAX_MESSAGE_BYTES = 45 * 1024 * 1024
"""The largest row. A history holds twice that, and Kafka's clients take answers up to 100 MB, brokers requests up to
100 MiB."""

_ALTERED = "exactly-once delivery depends on it, so the bridge sets it itself"
_READER = "readers here keep their own offsets and read committed records only"
RESERVED_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "write kafka.bootstrap",
    "metadata.broker.list": "write kafka.bootstrap",
    "sasl.password": "write kafka.password or kafka.password_file, which are never printed",
    "transactional.id": "it is derived from the name, so that a second bridge fences the first",
    "enable.idempotence": _ALTERED,
    "acks": _ALTERED,
    "request.required.acks": _ALTERED,
    "enable.gapless.guarantee": _ALTERED,
    "partitioner": "murmur2_random is part of the topic contract: a key must stay in its partition",
    "isolation.level": _READER,
    "group.id": _READER,
    "group.instance.id": _READER,
    "enable.auto.commit": _READER,
    "enable.auto.offset.store": _READER,
    "auto.offset.reset": _READER,
}


def bridge_name(text: str) -> str:
    """Checks ``name``: it is part of topic, slot and publication names, so it has to be short and plain."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,48}", text):
        raise ValueError("write 1 to 48 letters, digits or underscores")
    return text


def slot_name(text: str) -> str:
    """Checks a slot's name by PostgreSQL's rules.

    https://www.postgresql.org/docs/current/warm-standby.html#STREAMING-REPLICATION-SLOTS-MANIPULATION
    """
    if not re.fullmatch(rf"[a-z0-9_]{{0,{MAX_IDENTIFIER_BYTES}}}", text):
        raise ValueError(
            "write up to 63 lower-case letters, digits or underscores: PostgreSQL allows no others in a slot"
        )
    return text


def identifier(text: str) -> str:
    """Checks the length of a PostgreSQL name, because the server silently cuts longer ones."""
    if len(text.encode()) > MAX_IDENTIFIER_BYTES or "\0" in text:
        raise ValueError(f"write at most {MAX_IDENTIFIER_BYTES} bytes: PostgreSQL cuts longer names")
    return text


def salt(secret: SecretStr) -> SecretStr:
    """Refuses a salt that could be guessed. Prints nothing of it."""
    if len(secret.get_secret_value()) < MIN_SALT:
        raise ValueError(f"write at least {MIN_SALT} characters, for instance what openssl rand -hex 32 prints")
    return secret


def present(text: str) -> str:
    """Refuses an empty text: it does not mean "default"."""
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def condition(text: str) -> str:
    """Checks what can be checked of an SQL condition before the server sees it; returns it without space around it."""
    if "\0" in text:
        raise ValueError("contains a zero byte")
    return present(text).strip()


def table_name(text: str) -> str:
    """Checks ``schema.table``, and returns it in the one spelling by which tables are looked up."""
    return _canonical(text, "write schema.table, for instance public.orders")


def table_pattern(text: str) -> str:
    """Checks a pattern: ``schema.table``, in which ``*`` stands for any characters."""
    return _canonical(text, "write schema.table with * for any characters, for instance public.* or public.order_*")


def _canonical(text: str, instead: str) -> str:
    namespace, table = parts(text)
    if not (namespace.strip() and table.strip()):
        raise ValueError(instead)
    return qualified(namespace, table)


def topic_name(text: str) -> str:
    """Checks a topic's name by Kafka's rules."""
    if not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME}}}", text) or text in (".", ".."):
        raise ValueError(f"write 1 to {MAX_TOPIC_NAME} letters, digits, dots, underscores or hyphens")
    return text


def bootstrap_servers(text: str) -> str:
    """Checks that the text is one or more ``host:port``, separated by commas."""
    if not re.fullmatch(r"[^\s,]+(,[^\s,]+)*", text):
        raise ValueError("write host:port, several with commas and no spaces, for instance kafka-1:9092,kafka-2:9092")
    return text


def split_list(value: object) -> object:
    """Splits a list that is written as ``a, b``, as environment variables do."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def one_or_more(value: object) -> object:
    """Returns a single name as a list of one."""
    return (value,) if isinstance(value, str) else value


MAX_INDEX_COLUMNS: Final = 8
"""The columns of an index share the 200 bytes of an entry; a longer value is sorted by its beginning only."""


def indexes(listed: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Checks that each index has columns, each once, and that no index is given twice."""
    for columns in listed:
        if len(columns) > MAX_INDEX_COLUMNS:
            raise ValueError(f"an index has at most {MAX_INDEX_COLUMNS} columns; got {len(columns)}")
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(f"an index lists each of its columns once, at least one; got {list(columns)}")
    if len(set(listed)) < len(listed):
        raise ValueError("an index is given twice; keep one of them")
    return listed


def not_empty(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Refuses an empty list: a bridge without tables would only make the server keep WAL."""
    if not patterns:
        raise ValueError("list at least one schema.table pattern")
    return patterns


def number(value: object) -> object:
    """Refuses true and false: ``yes`` would become port 1, or one partition for ever."""
    if isinstance(value, bool):
        raise ValueError("write a number")  # noqa: TRY004 - pydantic reports ValueError only
    return value


def scalar(value: object) -> object:
    """Checks the value of a librdkafka option, which is one plain value."""
    if not isinstance(value, str | int | float | bool):
        raise ValueError("write text, a number, true or false")  # noqa: TRY004 - pydantic reports ValueError only
    return value


def kafka_options(options: Mapping[str, object], *, has_password: bool) -> None:
    """Refuses options that would break a guarantee, and a password without the options that it needs."""
    for name in options:
        if reason := RESERVED_OPTIONS.get(name):
            raise ValueError(f'"{name}" cannot be set here: {reason}')
    if has_password:
        protocol = str(options.get("security.protocol", "plaintext"))
        if protocol.lower() not in ("sasl_ssl", "sasl_plaintext") or "sasl.username" not in options:
            raise ValueError(
                "a password is given, but it would not be used: "
                'set options "security.protocol" (SASL_SSL or SASL_PLAINTEXT) and "sasl.username" too'
            )


def key_columns(keys: Mapping[str, tuple[str, ...]]) -> None:
    """Checks that every key has columns, each once."""
    for table, columns in keys.items():
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(f"{table}: list each key column once, at least one; got {list(columns)}")


def distinct_targets(targets: Mapping[str, str]) -> None:
    """Checks that no two source tables have the same target."""
    taken: dict[str, str] = {}
    for table, target in targets.items():
        if target in taken:
            raise ValueError(f'{taken[target]} and {table} both lead to "{target}"; give each its own')
        taken[target] = table


def topic_names(name: str, names: Mapping[str, str]) -> None:
    """Refuses topic names that other tables or internal topics could get by default."""
    for table, topic in names.items():
        if topic.startswith(f"{name}.") and topic != f"{name}.{table}":
            raise ValueError(
                f'topics.names: {table} → "{topic}" may collide with another table or an internal topic, '
                f'because "{name}." begins the default names; choose one that begins differently'
            )


def other_topics(name: str, topics: Iterable[str]) -> None:
    """Refuses topics of the bridge: they are tables, and are chosen with ``view.tables``."""
    for topic in topics:
        if topic.startswith(f"{name}."):
            raise ValueError(f"view.topics: {topic} is a topic of this bridge; choose its tables with view.tables")


def history_retention_ms(value: int) -> int:
    """Checks a ``retention.ms``: with less than a minute, there would be nothing to read."""
    if value != -1 and not 60_000 <= value <= MAX_RETENTION_MS:
        raise ValueError(f"write 60000 (a minute) to {MAX_RETENTION_MS} (a century), or -1 for ever")
    return value


def history_names(names: Mapping[str, str]) -> None:
    """Refuses a topic for a table that is the history topic of another table."""
    tables = {topic: table for table, topic in names.items()}
    for topic, table in tables.items():
        if (other := tables.get(topic.removesuffix(".history"))) not in (None, table):
            raise ValueError(f'names: {table} → "{topic}" is the history topic of {other}; choose another')


def replica_targets(sources: Iterable[str], tables: Mapping[str, str], schema: str | None, prefix: str) -> None:
    """Refuses a replica table that is the default one of another table, if that is listed by its full name."""
    chosen = {target: table for table, target in tables.items()}
    for source in sources:
        if "*" in source or source in tables:
            continue
        namespace, table = parts(source)
        target = qualified(schema or namespace, prefix + table)
        if target in chosen:
            raise ValueError(
                f'sink.tables: {chosen[target]} → "{target}" is where {source} goes by default; choose another'
            )
