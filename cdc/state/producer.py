"""A producer of upserts and deletes for a compacted topic. It cannot corrupt the state that it writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Self

import orjson

from cdc.base.config import TopicsConfig
from cdc.base.errors import TopicRefused
from cdc.state.absolute import refuse_deltas
from cdc.state.keys import Key, KeyFormat
from cdc.state.options import client_options
from cdc.state.topics import state_topic
from cdc.state.values import Value, encode
from cdc.state.writer import FencedWriter

_BRIDGE_HEADER: Final = b"v="
"""The first bytes of every header that a bridge writes."""


class StateProducer:
    """The one writer of a state topic.

    Every call is a Kafka transaction, and readers see its record when it returns. ``transaction`` combines several
    calls. Opening a second producer of the topic, in this process or another, fences this one: its next call raises
    ``FencedError``. The producer holds the values of all keys in memory.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: the state topic, which is compacted.
        key_columns: the key columns in order; none for plain keys. Keys are written as the bridge writes them:
            ``{"region":"eu","id":7}``.
        absolute_fields: names of fields that look like deltas and are not.
        create: how to create the topic when it is missing; with None, it must exist.

    Raises:
        ConfigError: an option, a name or a column is invalid.
        TopicRefused: the topic is missing, its cleanup policy is not exactly ``compact``, a bridge writes it,
            or it holds keys in another spelling.
        TopicUnavailable: no broker answers.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        *,
        key_columns: Sequence[str] = (),
        absolute_fields: Collection[str] = (),
        create: TopicsConfig | None = None,
    ) -> None:
        settings = client_options(options)
        self._form = KeyFormat(key_columns)
        self._absolute_fields = frozenset(absolute_fields)
        state_topic(settings, topic, create)
        self._writer = FencedWriter(settings, topic)
        try:
            self._refuse_what_others_wrote(topic)
        except TopicRefused:
            self._writer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def get(self, key: Key) -> dict[str, Any] | None:
        """Returns the key's value, or None. Inside ``transaction``, it includes what the transaction wrote.

        Raises:
            ValueRefused: the key is invalid for this topic, or another program wrote a value that is not a JSON object.
        """
        entry = self._writer.get(self._form.encode(key))
        return None if entry is None else entry.content

    def version(self, key: Key) -> int:
        """Returns the key's version at the last commit: the offset of its newest record; ``ABSENT`` without a value."""
        return self._writer.entries.version(self._form.encode(key))

    def put(self, key: Key, value: Value, *, expected: int | None = None) -> None:
        """Sets the key's value, and keeps nothing of the old one.

        Args:
            key: a text, or the key columns by name.
            value: an object with absolute values.
            expected: the version that the key must have, ``ABSENT`` for a new key; None accepts any.

        Raises:
            ValueRefused: the value is not an object, a field looks like a delta, or the key has two spellings.
            VersionConflict: the key has another version.
            FencedError: a second producer of the topic was opened.
            TopicUnavailable: Kafka does not answer. Close the producer and open it again to read back what was written.
        """
        encoded = encode(value)
        refuse_deltas(orjson.loads(encoded), self._absolute_fields)
        self._write(self._form.encode(key), encoded, expected)

    def delete(self, key: Key, *, expected: int | None = None) -> None:
        """Deletes the key by writing a record without a value; nothing else deletes.

        Does so even if the key has no value, because a reader may hold one that this producer does not know of.
        Arguments and errors are those of ``put``.
        """
        self._write(self._form.encode(key), None, expected)

    def transaction(self) -> AbstractContextManager[None]:
        """Makes all puts and deletes of the block readable together: ``with producer.transaction():``.

        If an exception leaves the block, none of them happens, and you can go on using the producer.
        """
        return self._writer.transaction()

    def close(self) -> None:
        """Closes the connections."""
        self._writer.close()

    def _refuse_what_others_wrote(self, topic: str) -> None:
        """Refuses a topic with rows that a bridge owns, or with keys in another spelling, which would never go away."""
        for key, entry in self._writer.entries.now.items():
            if entry.header.startswith(_BRIDGE_HEADER):
                raise TopicRefused(
                    f"topic {topic!r} is written by a bridge, and mirrors a table",
                    remedy="change the table, and the topic follows; or write to another topic",
                )
            if (canonical := self._form.canonical(key)) is not None and canonical != key:
                raise TopicRefused(
                    f"topic {topic!r} holds the key {key.decode()}, which is written {canonical.decode()} here: "
                    "both would keep a value",
                    remedy=f"move its value: open the topic without key_columns, then get and delete({key.decode()!r})",
                )

    def _write(self, key: bytes, value: bytes | None, expected: int | None) -> None:
        self._writer.expect(key, expected)
        with self._writer.transaction():
            self._writer.write(key, value)
