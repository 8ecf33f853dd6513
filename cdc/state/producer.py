"""Keyed upserts and deletes onto a compacted topic: the producer that cannot corrupt the state it writes."""

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
"""How the header of the bridge's topic contract begins."""


class StateProducer:
    """The one writer of a state topic.

    Every call is a Kafka transaction of its own, and readable when it returns; ``transaction`` makes one of several.
    Opening a second producer of the topic, in this process or another, fences this one: its next call raises
    ``FencedError``. The values of all live keys are held in memory.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        topic: compacted.
        key_columns: of the keys, in order, as the bridge writes them: ``{"region":"eu","id":7}``; none for plain texts.
        absolute_fields: names of fields that look like deltas and are none.
        create: how to make the topic when it is missing; None: it must be there.

    Raises:
        ConfigError: an option, a name or a column is wrong.
        TopicRefused: the topic is missing, its cleanup policy is not exactly ``compact``, a bridge writes it,
            or somebody wrote keys in another spelling.
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
        """What the key holds, None for nothing; inside of ``transaction``, with what that one wrote.

        Raises:
            ValueRefused: no key of this topic, or somebody else wrote a value that is no JSON object.
        """
        entry = self._writer.get(self._form.encode(key))
        return None if entry is None else entry.content

    def version(self, key: Key) -> int:
        """The key's version at the last commit: the offset of its newest record; ``ABSENT`` when it holds nothing."""
        return self._writer.entries.version(self._form.encode(key))

    def put(self, key: Key, value: Value, *, expected: int | None = None) -> None:
        """Let the key hold this value, whole: nothing of what it held before is kept.

        Args:
            key: a text, or the key columns by name.
            value: an object with absolute values.
            expected: the version that the key has to have, ``ABSENT`` for a new key; None takes any.

        Raises:
            ValueRefused: no object, a field that looks like a delta, or a key with two spellings.
            VersionConflict: the key has another version.
            FencedError: a second producer of the topic was opened.
            TopicUnavailable: Kafka does not answer. Close, and open again: whether it was written is read back then.
        """
        encoded = encode(value)
        refuse_deltas(orjson.loads(encoded), self._absolute_fields)
        self._write(self._form.encode(key), encoded, expected)

    def delete(self, key: Key, *, expected: int | None = None) -> None:
        """Let the key hold nothing: writes a record without a value, which is all that deletes.

        Of a key that holds nothing, too: a reader may still hold a value that this producer does not know of.
        Arguments and errors as for ``put``.
        """
        self._write(self._form.encode(key), None, expected)

    def transaction(self) -> AbstractContextManager[None]:
        """``with producer.transaction():`` makes all puts and deletes inside readable together, or none of them.

        None is when the block is left by an exception; the producer can go on after it.
        """
        return self._writer.transaction()

    def close(self) -> None:
        """Let the brokers go."""
        self._writer.close()

    def _refuse_what_others_wrote(self, topic: str) -> None:
        """Rows of a table, which the bridge owns; or keys that would live on beside ours."""
        for key, entry in self._writer.entries.now.items():
            if entry.header.startswith(_BRIDGE_HEADER):
                raise TopicRefused(
                    f"topic {topic!r} is written by a bridge: it holds the rows of a table, and no others",
                    remedy="change the table, and the topic follows; or write another topic",
                )
            if (canonical := self._form.canonical(key)) is not None and canonical != key:
                raise TopicRefused(
                    f"topic {topic!r} holds the key {key.decode()}, which is written {canonical.decode()} here: "
                    "each would keep a value of its own",
                    remedy=f"move its value: open the topic without key_columns, then get and delete({key.decode()!r})",
                )

    def _write(self, key: bytes, value: bytes | None, expected: int | None) -> None:
        self._writer.expect(key, expected)
        with self._writer.transaction():
            self._writer.write(key, value)
