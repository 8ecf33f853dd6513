"""Opens values: whichever format they were written in, they become the JSON objects of the topic contract. Pure.

A JSON object begins with a brace, and a value with a schema of the registry begins with a zero byte (Confluent's wire
format), so each value tells what it is. A topic may hold both for a while: what was written before its format changed
stays until the cleaner comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cdc.contract.formats.registered import ValueReader, registered
from cdc.contract.record import TableSchema, WrittenSchema

_WITH_SCHEMA: Final = b"\0"


class ValueOpener:
    """Opens the values of one topic.

    Args:
        definitions: all definitions of the topic; they name the schemas that its values were written with.
        again: returns them anew, for readers that go on while the table changes; None if the caller makes a new opener.
    """

    def __init__(
        self, definitions: Iterable[TableSchema], again: Callable[[], Iterable[TableSchema]] | None = None
    ) -> None:
        self._written = _written(definitions)
        self._again = again
        self._readers: dict[int, ValueReader] = {}

    @property
    def is_needed(self) -> bool:
        """Whether a value of the topic may be anything but JSON."""
        return bool(self._written)

    def json(self, value: bytes) -> bytes:
        """Returns the row as the object that the topic contract describes. Leaves alone what is not in a format.

        Raises:
            ValueError: the value has a schema that is not on record, or is damaged; the message says which.
        """
        if not value.startswith(_WITH_SCHEMA):
            return value
        number = int.from_bytes(value[1:5], "big")
        reader = self._readers.get(number) or self._reader(number)
        return reader.json(value)

    def _reader(self, number: int) -> ValueReader:
        if number not in self._written and self._again is not None:
            self._written = _written(self._again())
        if number not in self._written:
            raise ValueError(f"the value has schema {number}, which is in no definition of the schemas topic")
        written = self._written[number]
        reader = self._readers[number] = registered(written.format).reader(written.text)
        return reader


def _written(definitions: Iterable[TableSchema]) -> dict[int, WrittenSchema]:
    return {each.schema_id: each for definition in definitions for each in definition.written}
