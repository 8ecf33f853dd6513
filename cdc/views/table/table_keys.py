"""The keys of one table of a view: as records have them, as values, and as people write them. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import orjson

from cdc.contract.formats.canonical import Identity, reading_of
from cdc.contract.formats.written_key import key_bytes, written_values
from cdc.views.store.port import Key
from cdc.views.table.answers import Range
from cdc.views.table.equal_keys import first_of_equals, is_spelled_otherwise, last_of_equals
from cdc.views.table.errors import WrongKey
from cdc.views.table.facts import KeyColumn, KeyKind
from cdc.views.table.forms import topic_form
from cdc.views.table.keys import KeyForm, Value, is_respelled, order_of, prefix_range


class TableKeys:
    """Reads and writes the keys of one table.

    Args:
        kind: how keys are written.
        columns: the columns of the key; none unless ``kind`` is ``columns``.
    """

    def __init__(self, kind: KeyKind, columns: Sequence[KeyColumn]) -> None:
        self._kind: Final = kind
        self._columns: Final = [(column.name, column.sql_type) for column in columns]
        self._form: Final = KeyForm(self._columns)
        self.floats: Final = self._form.floats
        self.width: Final = len(self._columns) or 1
        self.readings: Final = [reading_of(sql_type) for _, sql_type in self._columns]
        self.has_equal_keys: Final = any(each.identity is Identity.VALUE for each in self.readings)
        self._has_one_spelling: Final = not any(is_respelled(column.sql_type) for column in columns)
        self._topic_key: Final = None if kind == "columns" else topic_form(kind, "json").key

    def place(self, key: bytes | Sequence[Value]) -> Key:
        """Returns the place of a key's row: ``of_record`` for a record's key, ``of_values`` for values."""
        return self.of_record(key) if isinstance(key, bytes) else self.of_values(key)

    def of_record(self, key: bytes) -> Key:
        """Returns the place of a record key's row. Its text is empty if the server may spell the key differently.

        Raises:
            WrongKey: not a key of this table.
        """
        try:
            if self._topic_key:
                return Key(self._topic_key(key)[0], key)
            return Key(self._form.order(key), key if self._is_usual(key) else b"")
        except ValueError as error:
            raise WrongKey(f"{key.decode(errors='replace')}: {error}") from error

    def of_values(self, values: Sequence[Value]) -> Key:
        """Returns the place of the row with these key values, one for each key column.

        A table without key columns has one value, the key itself as text or bytes. The text of the place is empty if
        the values have several spellings: only the server knows which one it writes.

        Raises:
            WrongKey: too few or too many values.
        """
        if self._kind != "columns":
            if len(values) != 1:
                raise WrongKey(f"the key of this table is one value, but {len(values)} were given")
            return self.of_record(values[0] if isinstance(values[0], bytes) else self.written(str(values[0])))
        if len(values) != len(self._columns):
            raise WrongKey(f"the key is ({', '.join(self._form.names)}), but {len(values)} values were given")
        try:
            order = order_of(values, self.floats)
            text = orjson.dumps(dict(zip(self._form.names, values, strict=True))) if self._has_one_spelling else b""
            return Key(order, text)
        except (ValueError, TypeError) as error:
            raise WrongKey(f"not a key of ({', '.join(self._form.names)}): {error}") from error

    def spelled_otherwise(self, key: bytes | Sequence[Value]) -> Sequence[Value]:
        """The values of a key, if the source may hold an equal key that is spelled differently; otherwise nothing.

        Raises:
            ValueError: not a key of this table.
        """
        values: Sequence[Value] = key if not isinstance(key, bytes) else self._form.values(key)
        return values if any(map(is_spelled_otherwise, values, self.readings)) else ()

    def written(self, text: str) -> bytes:
        """The record's key for a key that a person wrote: ``{"id":1}``, ``id=1,region=eu``, or the only value.

        Where keys have no columns, the text is the key; where they are bytes, it is base64.

        Raises:
            WrongKey: not a key of this table.
        """
        if self._kind == "bytes":
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise WrongKey(f"{text} is not base64: {error}") from error
        if self._kind != "columns":
            return text.encode()
        return self.in_parts([text]) if len(self._columns) == 1 and not _is_named(text) else self._named(text)

    def in_parts(self, parts: Sequence[str]) -> bytes:
        """The record's key for one text for each key column, for example the segments of a path.

        Raises:
            WrongKey: too few or too many texts, or texts that are not of the columns' types.
        """
        names = self._form.names
        if len(parts) != len(names):
            raise WrongKey(f"the key is ({', '.join(names)}), but {len(parts)} values were given")
        try:
            return key_bytes(dict(zip(names, parts, strict=True)), self._columns)
        except ValueError as error:
            raise WrongKey(str(error)) from error

    def as_json(self, key: bytes) -> bytes:
        """A record's key as JSON text, as ``StoredRow.key`` has it."""
        return self._topic_key(key)[1] if self._topic_key else key

    def bounds(self, wanted: Range) -> tuple[bytes, bytes]:
        """The first order of a range of keys, and the order after its last key.

        Raises:
            ValueError: a value that no key can have.
        """
        for values in (wanted.prefix, wanted.start or (), wanted.stop or ()):
            if len(values) > self.width:
                raise ValueError(f"a key has {self.width} values, but {len(values)} were given")
        low, high = self._prefix_range(wanted.prefix, wanted.text)
        if wanted.start is not None:
            low = max(low, order_of(self._first_of_equals(wanted.start), self.floats))
        if wanted.stop is not None:
            high = min(high, order_of(self._first_of_equals(wanted.stop), self.floats))
        return low, high

    def _first_of_equals(self, values: Sequence[Value]) -> Sequence[Value]:
        """The values, each in the one of its spellings that sorts first."""
        pairs = list(zip(values, self.readings, strict=False))
        return [first_of_equals(*pair) for pair in pairs] if self.has_equal_keys else values

    def _prefix_range(self, prefix: Sequence[Value], text: str | None) -> tuple[bytes, bytes]:
        places = [
            place for place, pair in enumerate(zip(prefix, self.readings, strict=False)) if is_spelled_otherwise(*pair)
        ]
        if not places:
            return prefix_range(prefix, self.floats, text)
        if places != [len(prefix) - 1] or text is not None:
            raise ValueError(
                f"equal values of {self._form.names[places[0]]} may be written differently, and their keys do not "
                "stand together: a prefix may end with this value, but nothing may follow it"
            )
        *head, value = prefix
        low, _ = prefix_range([*head, first_of_equals(value, self.readings[places[0]])], self.floats)
        if not isinstance(value, str):
            return low, prefix_range([*head, 0.0], self.floats)[1]
        longest = last_of_equals(value, self.readings[places[0]])
        return low, prefix_range(head, self.floats, longest)[1]

    def _is_usual(self, key: bytes) -> bool:
        """Whether the bridge would write the key with exactly these bytes, as far as we can tell."""
        found = self._form.read(key)
        return self._has_one_spelling and orjson.dumps({name: found[name] for name in self._form.names}) == key

    def _named(self, text: str) -> bytes:
        names = self._form.names
        try:
            values = written_values(text)
            if values.keys() != set(names):
                raise ValueError(f"it names ({', '.join(values)}), the key is ({', '.join(names)})")
            return key_bytes(values, self._columns)
        except ValueError as error:
            raise WrongKey(f"{text}: {error}", remedy="write " + ",".join(f"{name}=…" for name in names)) from error


def _is_named(text: str) -> bool:
    return text.lstrip().startswith("{") or "=" in text
