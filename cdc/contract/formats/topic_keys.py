"""Translates the keys of one topic between their bytes and the JSON object that everything else works with. Pure.

A key in JSON begins with a brace, and a key in Avro with a zero byte and the id of its schema. The newest definition
says which of them the topic's rows have. What was written under a former form is deleted, for good; its tombstones
stay in the topic for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cdc.contract.change import Column
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.registered import HEAD_BYTES, head
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import TableSchema

if TYPE_CHECKING:
    from cdc.contract.formats.avro.keys import AvroKeyReader


class _Form(NamedTuple):
    """How keys with one schema are read and written; ``columns`` are names and types."""

    columns: tuple[tuple[str, str], ...]
    reader: AvroKeyReader


class TopicKeys:
    """Reads and writes the keys of one topic.

    Args:
        definitions: all definitions of the topic, the newest last.
        again: returns them anew, for readers that go on while the table changes; None if the caller makes a new one.
    """

    def __init__(
        self, definitions: Iterable[TableSchema], again: Callable[[], Iterable[TableSchema]] | None = None
    ) -> None:
        self._again = again
        self._take(definitions)

    def _take(self, definitions: Iterable[TableSchema]) -> None:
        known = list(definitions)
        self._forms = {head(each.key_schema.schema_id): _form(each) for each in known if each.key_schema is not None}
        newest = known[-1].key_schema if known else None
        self._newest = None if newest is None else head(newest.schema_id)

    @property
    def is_needed(self) -> bool:
        """Whether a key of the topic may be anything but JSON."""
        return bool(self._forms)

    def is_former(self, key: bytes) -> bool:
        """Returns whether a key has the form of a former definition, so that its record says nothing of a row."""
        begin = key[:HEAD_BYTES]
        return begin != self._newest and (begin in self._forms or (self._newest is not None and key[:1] == b"{"))

    def json(self, key: bytes) -> bytes:
        """Returns a key in any form as JSON. Leaves alone what is not in Avro.

        Raises:
            ValueError: the key has a schema that is not on record, or is damaged; the message says which.
        """
        if not key.startswith(b"\0"):
            return key
        begin = key[:HEAD_BYTES]
        if begin not in self._forms and self._again is not None:
            self._take(self._again())
        form = self._forms.get(begin)
        if form is None:
            number = int.from_bytes(begin[1:], "big")
            raise ValueError(f"the key has schema {number}, which is in no definition of the schemas topic")
        try:
            return form.reader.json(key)
        except ValueError as error:
            raise ValueError(f"not a key of its schema: {error}") from error

    def reading(self, test: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        """Returns a test of keys in any form, from one of keys in JSON; it is False for what is not a key."""

        def read(key: bytes) -> bool:
            try:
                return test(self.json(key))
            except ValueError:
                return False

        return test if not self.is_needed and self._again is None else read

    def wire(self, key: bytes) -> bytes:
        """Returns the bytes that the topic's newest form has for a key, which is given in JSON.

        A key of other columns, as a former definition had, stays as it is.
        """
        if self._newest is None:
            return key
        from cdc.contract.formats.avro.keys import key_of_json

        found = key_of_json(self._forms[self._newest].columns, key)
        return key if found is None else self._newest + found


def key_texts(columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
    """Returns the text of each column of a key in Avro or JSON, to be cast to the column's type.

    Args:
        columns: the columns of the key.
        key: any bytes. With whatever id it begins, a key in Avro is read by these columns.

    Returns:
        The texts; None if the bytes are not a key of these columns.
    """
    if not key.startswith(b"\0"):
        return JSON.key_texts(columns, key)
    from cdc.contract.formats.avro.keys import AvroKeyReader

    try:
        found = AvroKeyReader([(column.name, sql_type(column)) for column in columns]).json(key)
    except ValueError:
        return None
    return JSON.key_texts(columns, found)


def _form(definition: TableSchema) -> _Form:
    # Only who has keys in Avro pays for its import
    from cdc.contract.formats.avro.keys import AvroKeyReader

    types = {column.name: column.sql_type for column in definition.columns}
    columns = tuple((name, types[name]) for name in definition.key)
    return _Form(columns, AvroKeyReader(columns))
