"""Makes Debezium's envelopes in Avro around rows in Avro, and opens them again. Pure."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from cdc.base.compiled import twin
from cdc.contract.formats.avro.binary import varint
from cdc.contract.formats.avro.fields import NULL_BRANCH, VALUE_BRANCH, FieldsReader
from cdc.contract.formats.avro.reader import AvroReader
from cdc.contract.formats.avro.schema import is_same_schema
from cdc.contract.formats.debezium.avro_rows import DebeziumAvroWriter, read_field, row_reader
from cdc.contract.formats.debezium.avro_schema import envelope_name, envelope_schema, misread_events
from cdc.contract.formats.debezium.schema import connect_schema
from cdc.contract.formats.debezium.source import CONNECTOR, EventSource, place_of
from cdc.contract.formats.registered import HEAD_BYTES, RegisteredFormat, check_head, head
from cdc.contract.header import Stamp
from cdc.contract.record import DebeziumModes, TableSchema

_FIRST_BRANCH: Final = b"\x00"


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return varint(len(raw)) + raw


class AvroEnvelope:
    """Makes the envelopes of one definition.

    Args:
        table: the definition; the last schema of its values is that of the envelopes.
        source: what is the same in all of them.
    """

    __slots__ = ("_database", "_head", "_source", "_table")

    def __init__(self, table: TableSchema, source: EventSource) -> None:
        self._head = head(table.written[-1].schema_id)
        self._source = _string(source.version) + _string(CONNECTOR) + _string(source.name)
        self._database = _string(source.database)
        self._table = _string(table.namespace) + _string(table.name)

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What the module in C puts together."""
        return self._head, self._source, self._database, self._table

    def around(self, op: bytes, before: bytes | None, after: bytes | None, stamp: Stamp, now_ns: int) -> bytes:
        """Returns the envelope around the rows before and after a change.

        Args:
            op: as the envelope says it.
            before, after: rows in Avro.
            stamp: what the record's header says.
            now_ns: the time, in nanoseconds since 1970.
        """
        position, sequence, transaction, micros = place_of(op, stamp)
        return b"".join(
            (
                self._head,
                NULL_BRANCH if before is None else VALUE_BRANCH + before,
                NULL_BRANCH if after is None else VALUE_BRANCH + after,
                self._source,
                varint(micros // 1_000),
                _INCREMENTAL if op == b"r" else _NO_SNAPSHOT,
                self._database,
                VALUE_BRANCH + varint(len(sequence)) + sequence,
                VALUE_BRANCH + varint(micros),
                VALUE_BRANCH + varint(micros * 1_000),
                self._table,
                NULL_BRANCH if transaction is None else VALUE_BRANCH + varint(transaction),
                VALUE_BRANCH + varint(position),
                NULL_BRANCH * 4,  # xmin, origin, origin_lsn, transaction
                b"\x02",
                op,
                VALUE_BRANCH + varint(now_ns // 1_000_000),
                VALUE_BRANCH + varint(now_ns // 1_000),
                VALUE_BRANCH + varint(now_ns),
            )
        )


# A field with a default that is not null has its value in the first branch
_INCREMENTAL: Final = _FIRST_BRANCH + _string("incremental")
_NO_SNAPSHOT: Final = _FIRST_BRANCH + _string("false")


class _Operation(msgspec.Struct, gc=False):
    op: str


_decode_operation: Final = msgspec.json.Decoder(_Operation).decode


class AvroEnvelopeReader:
    """Opens the envelopes of one definition that were written with one schema.

    Args:
        table: the definition.
        modes: how the values were written.
        schema: the schema on record.

    Raises:
        ValueError: this version of cdc does not write such envelopes.
    """

    __slots__ = ("_compiled", "_rest", "_rows")

    def __init__(self, table: TableSchema, modes: DebeziumModes, schema: str) -> None:
        if not is_same_schema(schema, envelope_schema(table, modes)):
            raise ValueError("an envelope with a schema that a newer version of cdc writes")
        self._rows = row_reader(table, modes)
        self._rest = FieldsReader(map(read_field, connect_schema(table, modes)["fields"][2:]))
        module, rows = twin("cdc.contract.formats.debezium._envelopes"), self._rows.compiled
        self._compiled: Any = None if module is None or rows is None else module.AvroEnvelopeReader(rows)

    def json(self, value: bytes) -> bytes | None:
        """Returns the row as the object that the topic contract describes; None if the envelope deletes it.

        Raises:
            ValueError: not such an envelope; the message says what is wrong.
        """
        found = self.in_c(value)
        return self.in_python(value) if found is None else found

    def in_c(self, value: bytes) -> bytes | None:
        """Returns the same object, made in C; None if the value is damaged or unusual, or nothing was compiled."""
        return None if self._compiled is None else cast("bytes | None", self._compiled.json(value))

    def in_python(self, value: bytes) -> bytes | None:
        """Returns the same object, or says what is wrong with the value.

        Raises:
            ValueError: as ``json`` does.
        """
        check_head(value)
        _, place = self._row(value, HEAD_BYTES)
        after, place = self._row(value, place)
        rest, place = self._rest.read(value, place)
        if place != len(value):
            raise ValueError(f"{len(value) - place} bytes follow the envelope")
        if _decode_operation(rest).op == "d":
            return None
        if after is None:
            raise ValueError("an envelope without a row, which does not say that the row was deleted")
        return after

    def _row(self, value: bytes, place: int) -> tuple[bytes | None, int]:
        branch = value[place : place + 1]
        if branch == VALUE_BRANCH:
            return self._rows.read(value, place + 1)
        if branch != NULL_BRANCH:
            raise ValueError("not an envelope of Debezium: it ends too early, or there is no such branch of the union")
        return None, place + 1


def envelope_format(modes: DebeziumModes) -> RegisteredFormat:
    """Returns the format of envelopes whose values are written in these modes."""
    return RegisteredFormat(
        "AVRO",
        lambda table, _, __: envelope_schema(table, modes),
        is_same_schema,
        misread_events,
        lambda columns, schema, _: DebeziumAvroWriter(columns, modes, schema),
        AvroReader,  # refuses it: only a header says that a value is an envelope
        record=lambda table, _: envelope_name(table),
    )
