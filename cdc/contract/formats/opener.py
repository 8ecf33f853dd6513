"""Opens values: whichever format they were written in, they become the JSON objects of the topic contract. Pure.

A JSON object begins with a brace, and a value with a schema of the registry begins with a zero byte (Confluent's wire
format). The header of an envelope, in JSON or Avro, says that the value is one. The header's definition says whether
values are in other forms than JSON has by default. So each record tells what it is. A topic may hold several forms for
a while: what was written before its format changed stays until the cleaner comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from cdc.contract.debezium_modes import modes_of
from cdc.contract.formats.formed.rows import FormedReader
from cdc.contract.formats.registered import HEAD_BYTES, ValueReader, registered
from cdc.contract.header import envelope_of, schema_of
from cdc.contract.record import TableSchema, WrittenSchema

if TYPE_CHECKING:
    from cdc.contract.formats.debezium.avro_envelope import AvroEnvelopeReader
    from cdc.contract.formats.debezium.envelope import EnvelopeReader

_WITH_SCHEMA: Final = b"\0"
_DEFINITION: Final = b";schema="
_ENVELOPE: Final = b";envelope="
_MOST_ENDINGS: Final = 1_000
"""Far more than there are; headers of another program may each end in another way."""


class ValueOpener:
    """Opens the values of one topic.

    Args:
        definitions: all definitions of the topic; they name the schemas that its values were written with.
        again: returns them anew, for readers that go on while the table changes; None if the caller makes a new opener.
    """

    def __init__(
        self, definitions: Iterable[TableSchema], again: Callable[[], Iterable[TableSchema]] | None = None
    ) -> None:
        known = list(definitions)
        self._written = _written(known)
        self._by_fingerprint = _enveloped(known)
        self._formed = _formed(known)
        self._again = again
        self._readers: dict[int, ValueReader] = {}
        self._envelopes: dict[tuple[str, bytes, bytes], EnvelopeReader | AvroEnvelopeReader] = {}
        self._by_ending: dict[tuple[bytes, bytes], EnvelopeReader | AvroEnvelopeReader] = {}

    @property
    def is_needed(self) -> bool:
        """Whether a value of the topic may be anything but JSON."""
        return bool(self._written or self._by_fingerprint or any(self._formed.values()))

    def row(self, value: bytes, header: bytes) -> bytes | None:
        """Returns the row of a record as the object that the topic contract describes.

        Returns None for an envelope that says that the row was deleted. A tombstone follows it.

        Args:
            value, header: of the record.

        Raises:
            ValueError: the value has a schema that is not on record, or is damaged; the message says which.
        """
        if (marked := header.find(_ENVELOPE)) < 0:
            return self.unenveloped(value, header)
        begin = value[:HEAD_BYTES] if value[:1] == _WITH_SCHEMA else b""
        # Headers of one definition end alike, so that two searches for each record become one look-up
        ending = header[max(header.find(_DEFINITION, 0, marked), 0) :], begin
        reader = self._by_ending.get(ending) or self._ending(ending, header)
        return self.unenveloped(value, header) if reader is None else reader.json(value)

    def _ending(self, ending: tuple[bytes, bytes], header: bytes) -> EnvelopeReader | AvroEnvelopeReader | None:
        """Returns what reads values of records whose headers end like this; None if these are not envelopes."""
        if (mark := envelope_of(header)) is None:
            return None
        known = schema_of(header), mark, ending[1]
        reader = self._envelopes.get(known) or self._envelope(*known)
        if len(self._by_ending) < _MOST_ENDINGS:
            self._by_ending[ending] = reader
        return reader

    def unenveloped(self, value: bytes, header: bytes) -> bytes:
        """Does the same for a value that is not an envelope.

        Raises:
            ValueError: as ``row``.
        """
        if value.startswith(_WITH_SCHEMA):
            return self.json(value)
        form = self._form(schema_of(header))
        return value if form is None else form.json(value)

    def json(self, value: bytes) -> bytes:
        """Returns a value in any format as such an object. Leaves alone what is not in a format.

        Raises:
            ValueError: the value has a schema that is not on record, or is damaged; the message says which.
        """
        if not value.startswith(_WITH_SCHEMA):
            return value
        number = int.from_bytes(value[1:5], "big")
        reader = self._readers.get(number) or self._reader(number)
        return reader.json(value)

    def _reader(self, number: int) -> ValueReader:
        written = self._schema(number)
        reader = self._readers[number] = registered(written.format).reader(written.text)
        return reader

    def _schema(self, number: int) -> WrittenSchema:
        if number not in self._written and self._again is not None:
            self._written = _written(self._again())
        if number not in self._written:
            raise ValueError(f"the value has schema {number}, which is in no definition of the schemas topic")
        return self._written[number]

    def _form(self, fingerprint: str) -> FormedReader | None:
        """Returns what reads the values of a definition; None if they have the form that JSON has by default."""
        if fingerprint not in self._formed and self._again is not None:
            self._formed = _formed(self._again())
            self._formed.setdefault(fingerprint, None)  # asked for once: another program wrote it
        return self._formed.get(fingerprint)

    def _envelope(self, fingerprint: str, mark: bytes, begin: bytes) -> EnvelopeReader | AvroEnvelopeReader:
        """Returns what reads the envelopes of a definition; ``begin`` has the id of their schema, if they have one."""
        if fingerprint not in self._by_fingerprint and self._again is not None:
            self._by_fingerprint = _enveloped(list(self._again()))
        if fingerprint not in self._by_fingerprint:
            raise ValueError(f"the value has definition {fingerprint}, which the schemas topic lacks")
        definition = self._by_fingerprint[fingerprint]
        reader: EnvelopeReader | AvroEnvelopeReader
        # Only who reads envelopes pays for what converts their values
        if begin:
            from cdc.contract.formats.debezium.avro_envelope import AvroEnvelopeReader

            text = self._schema(int.from_bytes(begin[1:], "big")).text
            reader = AvroEnvelopeReader(definition, modes_of(mark.decode()), text)
        else:
            from cdc.contract.formats.debezium.envelope import EnvelopeReader

            reader = EnvelopeReader(definition, mark)
        self._envelopes[fingerprint, mark, begin] = reader
        return reader


def _formed(definitions: Iterable[TableSchema]) -> dict[str, FormedReader | None]:
    return {each.fingerprint: FormedReader(each) if each.is_formed else None for each in definitions}


def _enveloped(definitions: Iterable[TableSchema]) -> dict[str, TableSchema]:
    """Returns the definitions by fingerprint, if there is an envelope in any of their topics."""
    known = {each.fingerprint: each for each in definitions}
    return known if any(each.envelope or each.was_enveloped for each in known.values()) else {}


def _written(definitions: Iterable[TableSchema]) -> dict[int, WrittenSchema]:
    return {each.schema_id: each for definition in definitions for each in definition.written}
