"""An application's key → the key bytes that the bridge would write for it.

Compaction compares bytes. Two spellings of one key are two keys for ever: each keeps its own value, they may lie in
different partitions, and deleting one leaves the other. So there is only one spelling: a JSON object of the key columns
in a fixed order, without blanks. In topics with plain keys it is the text itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from cdc.base.errors import ConfigError, ValueRefused

Key: TypeAlias = "str | Mapping[str, Any]"
"""A key: a text, for a topic with plain keys, or the key columns by name."""

_INTEGERS: Final = 2**63


class KeyFormat:
    """How the keys of one topic are written.

    Args:
        columns: the key columns in order; none for plain keys.

    Raises:
        ConfigError: a column is named twice, or has no name.
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        if isinstance(columns, str) or len(set(columns)) < len(columns) or not all(columns):
            raise ConfigError(
                f"key columns {columns!r} are not a list of different names",
                remedy='give a tuple, for instance ("region", "user_id")',
            )
        self._columns = tuple(columns)

    def encode(self, key: Key) -> bytes:
        """Returns the key's bytes.

        Raises:
            ValueRefused: the columns are not the topic's, or a value has more than one spelling.
        """
        if not self._columns:
            if not isinstance(key, str) or not key:
                raise ValueRefused(
                    f"invalid key {key!r}: this topic has plain keys",
                    remedy="give a non-empty text, or name the key columns when you open the topic",
                )
            return _utf8(key)
        if isinstance(key, str) or key.keys() != set(self._columns):
            raise ValueRefused(
                f"invalid key {key!r}: this topic's keys have the columns {', '.join(self._columns)}",
                remedy="give each of them a value, and no others",
            )
        return orjson.dumps({column: _plain(column, key[column]) for column in self._columns})

    def canonical(self, key: bytes) -> bytes | None:
        """Returns the right spelling of a key, or None if the bytes are not a key with these columns."""
        try:
            content = orjson.loads(key)
            return self.encode(content) if isinstance(content, dict) else None
        except (orjson.JSONDecodeError, ValueRefused):
            return None


def _plain(column: str, value: object) -> str | int | bool:
    if isinstance(value, str):
        _utf8(value)
        return value
    if isinstance(value, int) and -_INTEGERS <= value < _INTEGERS:
        return value
    raise ValueRefused(
        f"key column {column!r} is {value!r}: only texts, booleans and integers of 64 bits have one spelling",
        remedy="write it as text in one fixed form: numeric, dates and times as PostgreSQL prints them",
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueRefused(
            f"invalid key {text!r}: half a surrogate pair is not a character",
            remedy="repair the text where it comes from",
        ) from error
