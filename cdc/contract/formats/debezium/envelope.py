"""Makes Debezium's envelopes of the records that the bridge has ready, and opens them again. Pure.

Theory of operation. Encoders write rows in Debezium's form (``rows``, in Avro ``avro_rows``). What surrounds a row is
made later, record by record, from what a record that is ready has anyway: the header has operation, position,
transaction and time, and the old row is kept for this as it is for a history. So whatever makes records needs not know
of envelopes.

A delete becomes two records: the envelope with ``op`` d, and a null value. Both have the same key and header and are in
one Kafka transaction. Only the null value deletes for compaction, and for readers that do not know the envelope. A
changed key is, as in Debezium, a delete of the old key and an insert under the new one.

The header of an envelope says in which modes it was written, so that no reader has to guess: ``envelope=…``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import orjson

from cdc.contract.change import Column
from cdc.contract.debezium_modes import mark_of, modes_of
from cdc.contract.formats.debezium.rows import DebeziumReader, DebeziumWriter
from cdc.contract.formats.debezium.schema import embedded_schema
from cdc.contract.formats.debezium.source import CONNECTOR, EventSource, place_of
from cdc.contract.formats.format import RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.header import Stamp, enveloped, stamp_of
from cdc.contract.record import DebeziumModes, TableSchema


class _Around(Protocol):
    """Makes the envelope around the rows before and after a change; rows that are not there are None."""

    def __call__(self, op: bytes, before: bytes | None, after: bytes | None, stamp: Stamp, now_ns: int) -> bytes: ...


class _Enveloped(NamedTuple):
    """How the envelopes of one definition are made.

    Attributes:
        around: makes an envelope.
        writer, key, places: make ``before`` of a key: its columns, and their places in the row.
        width: the number of columns.
        mark: the modes, for the header.
    """

    around: _Around
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
        self._moved: tuple[bytes, bytes] | None = None

    def learn(self, schema: TableSchema, columns: Sequence[Column], modes: DebeziumModes) -> None:
        """Take note of a definition, before the first record that refers to it.

        Args:
            schema: the definition.
            columns: its columns, as the stream described them.
            modes: how its values are written.
        """
        around, writer = _parts(schema, columns, modes, self._source)
        places = {column.name: place for place, column in enumerate(columns)}
        self._known[schema.fingerprint.encode()] = _Enveloped(
            around=around,
            writer=writer,
            key=tuple(columns[places[name]] for name in schema.key),
            places=tuple(places[name] for name in schema.key),
            width=len(columns),
            mark=mark_of(modes).encode(),
        )

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
            return (known.around(b"d", before, None, stamp, self._clock()), marked), (None, header)
        if op == b"u" and (lsn, seq) == self._moved:
            op, old = b"c", None
        return ((known.around(op, old, value, stamp, self._clock()), marked),)


def _parts(
    schema: TableSchema, columns: Sequence[Column], modes: DebeziumModes, source: EventSource
) -> tuple[_Around, RowWriter]:
    """Returns what makes the envelopes of a definition, and what writes its rows."""
    if schema.format == "json":
        return _JsonEnvelope(schema, modes, source).around, DebeziumWriter(columns, modes)
    # Only who writes Avro pays for its import
    from cdc.contract.formats.debezium.avro_envelope import AvroEnvelope
    from cdc.contract.formats.debezium.avro_rows import DebeziumAvroWriter

    return AvroEnvelope(schema, source).around, DebeziumAvroWriter(columns, modes, schema.written[-1].text)


class _JsonEnvelope:
    """Makes the envelopes of one definition in JSON: the bytes around what changes are always the same."""

    __slots__ = ("_before", "_database", "_end", "_source", "_table")

    def __init__(self, schema: TableSchema, modes: DebeziumModes, source: EventSource) -> None:
        fields = {"version": source.version, "connector": CONNECTOR, "name": source.name}
        self._before = b'{"before":'
        if modes.schemas:
            self._before = b'{"schema":' + embedded_schema(schema, modes) + b',"payload":' + self._before
        self._source = b',"source":' + orjson.dumps(fields)[:-1]
        self._database = b'","db":' + orjson.dumps(source.database) + b',"sequence":'
        self._table = b',"schema":' + orjson.dumps(schema.namespace) + b',"table":' + orjson.dumps(schema.name)
        self._end = b"}}" if modes.schemas else b"}"

    def around(self, op: bytes, before: bytes | None, after: bytes | None, stamp: Stamp, now_ns: int) -> bytes:
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


def _of_key(known: _Enveloped, key: bytes) -> bytes | None:
    """Returns ``before`` of a row of which only the key is known; None if the bytes are not a key of this table."""
    texts = JSON.key_texts(known.key, key)
    if texts is None:
        return None
    row: list[bytes | None] = [None] * known.width
    for place, text in zip(known.places, texts, strict=True):
        row[place] = text
    return known.writer.encode(tuple(row))


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

    __slots__ = ("_has_schema", "_rows")

    def __init__(self, schema: TableSchema, mark: bytes) -> None:
        modes = modes_of(mark.decode())
        self._has_schema = modes.schemas
        self._rows = DebeziumReader(schema, modes)

    def json(self, value: bytes) -> bytes | None:
        """Returns the row as the object that the topic contract describes; None if the envelope deletes it.

        Raises:
            ValueError: not such an envelope; the message says what is wrong.
        """
        try:
            payload = _decode_with_schema(value).payload if self._has_schema else _decode_payload(value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"not an envelope of Debezium: {error}") from error
        if payload.op == "d":
            return None
        return self._rows.json(payload.after)
