"""Translates the keys of one topic between their bytes and the JSON object that everything else works with. Pure.

A key in JSON begins with a brace, and a key in Avro with a zero byte and the id of its schema. The newest definition
says which of them the topic's rows have. What was written under a former form is deleted, for good; its tombstones
stay in the topic for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cdc.contract.formats.avro.keys import AvroKeyReader, AvroKeyWriter
from cdc.contract.formats.format import NOT_ENCODABLE, RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.registered import HEAD_BYTES, head
from cdc.contract.formats.written_key import canonical_text, column_of
from cdc.contract.record import TableSchema


class _Form(NamedTuple):
    """How keys with one schema are read and written; ``columns`` are names and types."""

    columns: tuple[tuple[str, str], ...]
    avro: AvroKeyReader
    json: RowWriter
    writer: AvroKeyWriter


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
            found = form.json.encode(form.avro.texts(key))
        except ValueError as error:
            raise ValueError(f"not a key of its schema: {error}") from error
        except NOT_ENCODABLE as error:
            raise ValueError(f"not a key of its schema: a value does not have its column's type ({error})") from error
        return found

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
        form = self._forms[self._newest]
        texts = JSON.key_texts([column_of(*each) for each in form.columns], key)
        if texts is None:
            return key
        pairs = zip(form.columns, texts, strict=True)
        return form.writer.encode(tuple(canonical_text(*column, text.decode()).encode() for column, text in pairs))


def _form(definition: TableSchema) -> _Form:
    assert definition.key_schema is not None
    types = {column.name: column.sql_type for column in definition.columns}
    pairs = tuple((name, types[name]) for name in definition.key)
    columns = [column_of(*each) for each in pairs]
    writer = AvroKeyWriter(columns, definition.key_schema.schema_id)
    return _Form(pairs, AvroKeyReader([each for _, each in pairs]), JSON.writer(columns), writer)
