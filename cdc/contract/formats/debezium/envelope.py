"""Makes Debezium's envelopes of the records that the bridge has ready, and opens them again. Pure.

Theory of operation. Encoders write rows in Debezium's form (``rows``, in Avro ``avro_rows``). What surrounds a row is
made later, record by record, from what a record that is ready has anyway: the header has operation, position,
transaction and time, and the old row is kept for this as it is for a history. So whatever makes records needs not know
of envelopes.

A delete becomes two records: the envelope with ``op`` d, and a null value. Both have the same key and header and are in
one Kafka transaction. Only the null value deletes for compaction, and for readers that do not know the envelope. A
changed key is, as in Debezium, a delete of the old key and an insert under the new one.

The header of an envelope says in which modes it was written, so that no reader has to guess: ``envelope=…``.

``_envelopes.pyx`` does the same in C for ordinary records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column
from cdc.contract.debezium_modes import mark_of, modes_of
from cdc.contract.formats.debezium.rows import DebeziumReader, DebeziumWriter
from cdc.contract.formats.debezium.schema import embedded_schema
from cdc.contract.formats.debezium.source import CONNECTOR, EventSource, place_of
from cdc.contract.formats.format import NOT_ENCODABLE, RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.values import Converter, converter, number, plain, text
from cdc.contract.header import Stamp, enveloped, stamp_of
from cdc.contract.kinds import Kind, kind_of_column
from cdc.contract.record import DebeziumModes, EventParts, FormatName, Ready, TableSchema

_MODULE: Final = "cdc.contract.formats.debezium._envelopes"
_IN_C: Final[Mapping[Converter, int]] = {number: 1, text: 2, plain: 2}
"""The numbers by which the module in C knows how a key's column is read; it leaves all others to Python."""


class _Envelope(Protocol):
    """Makes the envelopes of one definition."""

    def around(self, op: bytes, before: bytes | None, after: bytes | None, stamp: Stamp, now_ns: int) -> bytes:
        """Returns the envelope around the rows before and after a change; rows that are not there are None."""

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What the module in C puts together."""


class _Enveloped(NamedTuple):
    """How the envelopes of one definition are made.

    Attributes:
        envelope: makes an envelope.
        writer, key, places: make ``before`` of a key: its columns, and their places in the row.
        width: the number of columns.
        mark: the modes, for the header.
    """

    envelope: _Envelope
    writer: RowWriter
    key: tuple[Column, ...]
    places: tuple[int, ...]
    width: int
    mark: bytes


class EnvelopeMaker:
    """Makes the values of enveloped topics, in the order in which records go to them.

    Args:
        name: the bridge's name, which Debezium calls the topic prefix.
        database: the name of the source database.
        version: of cdc.
        clock: the time, in nanoseconds since 1970.
    """

    def __init__(self, name: str, database: str, version: str, clock: Callable[[], int]) -> None:
        self._source = EventSource(version, name, database)
        self._clock = clock
        self._known: dict[bytes, _Enveloped] = {}
        self._in_c = twin(_MODULE)
        self._known_in_c: dict[bytes, Any] = {}
        self._moved: tuple[bytes, bytes] | None = None

    def learn(self, schema: TableSchema, columns: Sequence[Column], modes: DebeziumModes) -> None:
        """Take note of a definition, before the first record that refers to it.

        Args:
            schema: the definition.
            columns: its columns, as the stream described them.
            modes: how its values are written.
        """
        envelope, writer = _parts(schema, columns, modes, self._source)
        places = {column.name: place for place, column in enumerate(columns)}
        fingerprint = schema.fingerprint.encode()
        self._known[fingerprint] = known = _Enveloped(
            envelope=envelope,
            writer=writer,
            key=tuple(columns[places[name]] for name in schema.key),
            places=tuple(places[name] for name in schema.key),
            width=len(columns),
            mark=mark_of(modes).encode(),
        )
        self._known_in_c[fingerprint] = _compiled(known, schema.format)

    def records(self, ready: list[Ready]) -> list[Ready]:
        """Returns the records to be written for those that are ready, as ``values`` makes them one by one."""
        made: list[Ready] = []
        place = 0
        while place < len(ready):
            if self._in_c is not None:
                place = self._in_c.take_records(ready, place, made, self._known_in_c, self._moved, self._clock)
                if place == len(ready):
                    break
            topic, key, value, header, old = ready[place]
            if isinstance(old, EventParts):  # an event leaves as it is
                made.append(ready[place])
            else:
                made += [(topic, key, each, marked, None) for each, marked in self.values(key, value, header, old)]
            place += 1
        return made

    def values(
        self, key: bytes, value: bytes | None, header: bytes, old: bytes | None
    ) -> Sequence[tuple[bytes | None, bytes]]:
        """Returns values and headers of the records to be written for one that is ready; all under the same key.

        Args:
            key, header: of the record.
            value: the row in Debezium's form; None if it was deleted.
            old: the row before the change in Debezium's form, as far as the stream sent it.
        """
        if not header:  # a record of the bridge's own, or a definition
            return ((value, header),)
        stamp = stamp_of(header)
        op, lsn, seq, *_, fingerprint = stamp
        known = self._known.get(fingerprint)
        if known is None:  # the tombstone of a key that another definition wrote
            return ((value, header),)
        marked = enveloped(header, known.mark)
        # A changed key is two records at one position: the old key's tombstone, then the row under the new key
        if value is None:
            if op == b"u":
                self._moved = lsn, seq
            before = old or _of_key(known, key)
            if before is None:
                return ((None, header),)
            return (known.envelope.around(b"d", before, None, stamp, self._clock()), marked), (None, header)
        if op == b"u" and (lsn, seq) == self._moved:
            op, old = b"c", None
        return ((known.envelope.around(op, old, value, stamp, self._clock()), marked),)


def _parts(
    schema: TableSchema, columns: Sequence[Column], modes: DebeziumModes, source: EventSource
) -> tuple[_Envelope, RowWriter]:
    """Returns what makes the envelopes of a definition, and what writes its rows."""
    if schema.format == "json":
        return _JsonEnvelope(schema, modes, source), DebeziumWriter(columns, modes)
    # Only who writes Avro pays for its import
    from cdc.contract.formats.debezium.avro_envelope import AvroEnvelope
    from cdc.contract.formats.debezium.avro_rows import DebeziumAvroWriter

    return AvroEnvelope(schema, source), DebeziumAvroWriter(columns, modes, schema.written[-1].text)


def _compiled(known: _Enveloped, format_name: FormatName) -> Any:
    """Returns what makes the same envelopes in C; None if it was not compiled."""
    module, rows = twin(_MODULE), known.writer.compiled
    if module is None or rows is None or not known.key:
        return None
    key = [
        (orjson.dumps(column.name), place, _IN_C.get(converter(column), 0))
        for column, place in zip(known.key, known.places, strict=True)
    ]
    make = module.JsonEnvelope if format_name == "json" else module.AvroEnvelope
    return make(enveloped(b"", known.mark), rows, key, known.envelope.parts)


class _JsonEnvelope:
    """Makes the envelopes of one definition in JSON: the bytes around what changes are always the same."""

    __slots__ = ("_before", "_database", "_end", "_source", "_table")

    def __init__(self, schema: TableSchema, modes: DebeziumModes, source: EventSource) -> None:
        fields = {"version": source.version, "connector": CONNECTOR, "name": source.name}
        self._before, self._end = _around_payload(schema, modes)
        self._source = b',"source":' + orjson.dumps(fields)[:-1]
        self._database = b'","db":' + orjson.dumps(source.database) + b',"sequence":'
        self._table = b',"schema":' + orjson.dumps(schema.namespace) + b',"table":' + orjson.dumps(schema.name)

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What the module in C puts together."""
        return self._before, self._source, self._database, self._table, self._end

    def around(self, op: bytes, before: bytes | None, after: bytes | None, stamp: Stamp, now_ns: int) -> bytes:
        """Returns the envelope around the rows before and after a change; rows that are not there are None."""
        position, sequence, transaction, micros = place_of(op, stamp)
        return (
            b'%b%b,"after":%b%b,"ts_ms":%d,"snapshot":"%b%b"%b","ts_us":%d,"ts_ns":%d%b,"txId":%b,"lsn":%d,'
            b'"xmin":null,"origin":null,"origin_lsn":null},"transaction":null,"op":"%b",'
            b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d%b'
        ) % (
            self._before,
            before or b"null",
            after or b"null",
            self._source,
            micros // 1_000,
            b"incremental" if op == b"r" else b"false",
            self._database,
            sequence.replace(b'"', b'\\"'),
            micros,
            micros * 1_000,
            self._table,
            b"null" if transaction is None else b"%d" % transaction,
            position,
            op,
            now_ns // 1_000_000,
            now_ns // 1_000,
            now_ns,
            self._end,
        )


def _around_payload(schema: TableSchema, modes: DebeziumModes) -> tuple[bytes, bytes]:
    """Returns what precedes the row before a change, and what ends an envelope."""
    before = b'{"before":'
    if modes.schemas:
        return b'{"schema":' + embedded_schema(schema, modes) + b',"payload":' + before, b"}}"
    return before, b"}"


def _of_key(known: _Enveloped, key: bytes) -> bytes | None:
    """Returns ``before`` of a row of which only the key is known; None if the bytes are not a key of this table."""
    texts = JSON.key_texts(known.key, key)
    if texts is None:
        return None
    row: list[bytes | None] = [None] * known.width
    for place, column, text_of in zip(known.places, known.key, texts, strict=True):
        is_boolean = kind_of_column(column).kind is Kind.BOOL  # in arrays, too
        row[place] = text_of.replace(b"true", b"t").replace(b"false", b"f") if is_boolean else text_of
    try:
        return known.writer.encode(tuple(row))
    except NOT_ENCODABLE:
        return None


class _Payload(msgspec.Struct, gc=False):
    """The members of an envelope that say what becomes of the row."""

    op: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")


class _WithSchema(msgspec.Struct, gc=False):
    payload: _Payload


_decode_payload: Final = msgspec.json.Decoder(_Payload).decode
_decode_with_schema: Final = msgspec.json.Decoder(_WithSchema).decode


class EnvelopeReader:
    """Opens the envelopes of one definition, which were written in the same modes.

    Args:
        schema: the definition.
        mark: the modes, as the records' header spells them.

    Raises:
        ValueError: there are no such modes.
    """

    __slots__ = ("_compiled", "_has_schema", "_rows")

    def __init__(self, schema: TableSchema, mark: bytes) -> None:
        modes = modes_of(mark.decode())
        self._has_schema = modes.schemas
        self._rows = DebeziumReader(schema, modes)
        module, rows = twin(_MODULE), self._rows.compiled
        self._compiled: Any = None
        if module is not None and rows is not None:
            self._compiled = module.JsonEnvelopeReader(rows, *_around_payload(schema, modes))

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
        try:
            payload = _decode_with_schema(value).payload if self._has_schema else _decode_payload(value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"not an envelope of Debezium: {error}") from error
        if payload.op == "d":
            return None
        return self._rows.json(payload.after)
