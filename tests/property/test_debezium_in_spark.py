"""Spark's jobs read Debezium's change events with code of their own: as the bridge wrote them, or not at all."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.debezium_modes import mark_of
from cdc.contract.formats.debezium.avro_envelope import AvroEnvelopeReader
from cdc.contract.formats.debezium.envelope import EnvelopeMaker, EnvelopeReader
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.formats.format import RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.registered import registered
from cdc.contract.header import HeaderStamp
from cdc.contract.json_members import member_texts
from cdc.contract.record import DebeziumModes, WrittenSchema
from cdc.contract.schema import table_schema
from cdc.spark.values.columns import kind_of, row_texts
from cdc.spark.values.debezium import DAMAGED, EventReader
from cdc.spark.values.debezium_avro import AvroEventReader, is_event_schema
from tests.property.test_debezium_values import ALL_MODES
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import Catalogue, printed_catalogue, random_table

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_STAMP: Final = HeaderStamp(LSN(7), 734, 1_795_190_486_566_123)


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


class Events:
    """Writes rows as the bridge does, and reads them as Spark's jobs and as the bridge's readers do."""

    writer: RowWriter

    def __init__(self, columns: Sequence[Column], modes: DebeziumModes) -> None:
        relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
        self._schema = table_schema(relation, (columns[0].name,), "t")
        self._maker = EnvelopeMaker("shop", "shop", "0.1.0", lambda: 1_795_190_486_571_884_012)
        types = {each.name: each.sql_type for each in self._schema.columns}
        self._spark = EventReader(types, modes)
        self._side(columns, modes)
        self._kinds = {name: kind_of(sql_type) for name, sql_type in types.items()}

    def _side(self, columns: Sequence[Column], modes: DebeziumModes) -> None:
        self._maker.learn(self._schema, columns, modes)
        self.writer = DebeziumWriter(columns, modes)
        self._bridge: EnvelopeReader | AvroEnvelopeReader = EnvelopeReader(self._schema, mark_of(modes).encode())

    def made(self, row: bytes | None, op: str = "c", old: bytes | None = None) -> list[bytes | None]:
        """The values that the bridge writes for a change."""
        header = _STAMP.header(op, 1, self._schema.fingerprint)
        return [value for value, _ in self._maker.values(b"{}", row, header, old)]

    def by_spark(self, value: bytes) -> bytes | None:
        """The object that Spark's jobs make of an event; the text for a damaged one if they refuse it."""
        found = self._object(value)
        if found is None:
            return None
        try:
            row_texts(found.encode(), self._kinds)
        except DecodeError:
            return DAMAGED.encode()
        return found.encode()

    def _object(self, value: bytes) -> str | None:
        return self._spark.object(value)

    def by_bridge(self, value: bytes) -> bytes | None:
        """The object that the bridge's readers make of it; the text for a damaged one if they refuse it."""
        try:
            found = self._bridge.json(value)
            member_texts((found or b"{}").decode())
        except ValueError:
            return DAMAGED.encode()
        return found


class EventsInAvro(Events):
    """The same in Avro."""

    def _side(self, columns: Sequence[Column], modes: DebeziumModes) -> None:
        form = registered("avro", modes)
        text = form.schema(self._schema, "shop", "refuse")
        written = replace(self._schema, format="avro", written=(WrittenSchema(5, text, "avro"),))
        self._maker.learn(written, columns, modes)
        self.writer = form.writer(columns, text, 5)
        self._bridge, self._in_avro = AvroEnvelopeReader(written, modes, text), AvroEventReader(text)
        assert is_event_schema(text)

    def _object(self, value: bytes) -> str | None:
        return self._spark.object_of(self._in_avro, value)


@pytest.mark.parametrize("events_in", [Events, EventsInAvro])
@pytest.mark.parametrize("modes", ALL_MODES, ids=lambda modes: "-".join(map(str, modes[:4])))
def test_each_type_is_read_as_json_has_it(catalogue: Catalogue, modes: DebeziumModes, events_in: type[Events]) -> None:
    read = 0
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        json_writer, events = JSON.writer(columns), events_in(columns, modes)
        writer = events.writer
        for text in each.texts:
            if writer.problem(0, text):
                continue
            (event,) = events.made(writer.encode((text,)))
            assert events.by_spark(event or b"") == json_writer.encode((text,)), f"{name} {text!r} {event!r}"
            read += 1
    assert read > len(catalogue.types)


def test_rows_and_damage_are_read_as_the_bridge_reads_them(catalogue: Catalogue) -> None:
    """Both refuse, or both read the same; where only one of them is strict, the row is not another one."""
    rng = random.Random(SEED)
    refused = 0
    for _ in range(times(60, soak=2_000)):
        types, columns, _ = random_table(rng, catalogue)
        modes = rng.choice(ALL_MODES)._replace(schemas=rng.random() < 0.5)
        writer, events = DebeziumWriter(columns, modes), Events(columns, modes)
        row = tuple(None if rng.random() < 0.2 else rng.choice(each.texts) for each in types)
        try:
            written = writer.encode(row)
        except ValueError:
            continue
        (event,) = events.made(written)
        assert event is not None
        assert events.by_spark(event) == events.by_bridge(event) == JSON.writer(columns).encode(row), f"SEED={SEED}"
        place = event.index(b'"after"')
        for _ in range(100):
            flipped = bytearray(event)
            flipped[rng.randrange(place, len(event))] = rng.choice((rng.randrange(256), *b'"[]{},:0-9enT'))
            for damaged in (bytes(flipped), event[: rng.randrange(len(event))], event + b"}"):
                found, expected = events.by_spark(damaged), events.by_bridge(damaged)
                refused += found == DAMAGED.encode()
                assert found in (expected, DAMAGED.encode()), (
                    f"SEED={SEED} {columns} {damaged!r} {found!r} {expected!r}"
                )
    assert refused > 0


def test_rows_and_damage_in_avro_are_read_as_the_bridge_reads_them(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    refused = read = 0
    for _ in range(times(60, soak=2_000)):
        types, columns, _ = random_table(rng, catalogue)
        events = EventsInAvro(columns, rng.choice(ALL_MODES))
        row = tuple(
            None if place and rng.random() < 0.2 else rng.choice(each.texts) for place, each in enumerate(types)
        )
        try:
            written = events.writer.encode(row)
        except ValueError:
            continue
        (event,) = events.made(written)
        assert event is not None
        assert events.by_spark(event) == events.by_bridge(event) == JSON.writer(columns).encode(row), f"SEED={SEED}"
        read += 1
        for _ in range(100):
            flipped = bytearray(event)
            flipped[rng.randrange(6, len(event))] = rng.choice((rng.randrange(256), 0, 1, 2, 4, 128, 255))
            for damaged in (bytes(flipped), event[: rng.randrange(5, len(event))], event + b"\0"):
                found, expected = events.by_spark(damaged), events.by_bridge(damaged)
                refused += found == DAMAGED.encode()
                assert found in (expected, DAMAGED.encode()), (
                    f"SEED={SEED} {columns} {damaged!r} {found!r} {expected!r}"
                )
    assert read > 0
    assert refused > 0


@pytest.mark.parametrize("modes", [DebeziumModes(), DebeziumModes(schemas=True)], ids=["plain", "schemas"])
def test_a_deleted_row_is_none(modes: DebeziumModes) -> None:
    events = Events([Column("id", 23, -1, "pg_catalog.int4", True, 1)], modes)
    event, tombstone = events.made(None, "d", b'{"id":1}')
    assert event is not None
    assert tombstone is None
    assert events.by_spark(event) is None
    assert events.by_spark(event.replace(b'"after":null', b'"after":{"id":1}')) == DAMAGED.encode()
    assert events.by_spark(event.replace(b'"op":"d"', b'"op":"c"')) == DAMAGED.encode()
    assert events.by_spark(event.replace(b'"op":"d"', b'"op":"t"')) == DAMAGED.encode()
