"""When the registry is asked, what is done with its answer, and what without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc.base.config import Config
from cdc.base.config.debezium import DebeziumConfig
from cdc.base.errors import CdcError, RegistryRefused, RegistryUnavailable
from cdc.bridge.encode import TableEncoder, ValueForm
from cdc.bridge.scope.formats import TableFormats
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.avro.keys import key_schema
from cdc.contract.formats.avro.schema import avro_schema, misread
from cdc.contract.formats.debezium.avro_schema import envelope_schema
from cdc.contract.formats.json_schema.schema import read_schema
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.registered import SchemaKind
from cdc.contract.record import DebeziumModes, SchemaColumn, TableSchema, WrittenSchema
from cdc.contract.schema import parse_schema, schema_value, table_schema

COLUMNS = (Column("id", 23, -1, "pg_catalog.int4", True), Column("a", 25, -1, "pg_catalog.text", False))
RELATION = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, COLUMNS)
TOPIC = "shop.public.t"


@dataclass
class MemoryRegistry:
    """A registry in memory; ``error`` is what it raises instead of an answer."""

    schemas: dict[int, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    error: Exception | None = None
    mode: str = "BACKWARD"
    language: str | None = None
    next_id: int = 7

    def register(self, subject: str, kind: SchemaKind, text: str) -> int:
        """The id of the schema; a new one unless it is there."""
        self.asked.append(f"register {subject} {kind}")
        if self.error is not None:
            raise self.error
        for number, known in self.schemas.items():
            if known == text:
                return number
        self.schemas[self.next_id] = text
        self.next_id += 1
        return self.next_id - 1

    def text_of(self, schema_id: int) -> str | None:
        """The schema with this id."""
        self.asked.append(f"text of {schema_id}")
        if self.error is not None:
            raise self.error
        return self.schemas.get(schema_id)

    def compatibility(self, subject: str) -> str:
        """The mode of every subject."""
        self.asked.append(f"compatibility of {subject}")
        return self.mode

    def kind(self, subject: str) -> str | None:
        """The language of every subject."""
        self.asked.append(f"kind of {subject}")
        return self.language


def configured(registry: dict[str, Any] | None = None, **topics: Any) -> Config:
    """A configuration with a registry."""
    return Config.model_validate(
        {
            "name": "shop",
            "kafka": {"bootstrap": "localhost:9092"},
            "topics": {"format": "avro", **topics},
            "registry": {"url": "http://localhost:8081", **(registry or {})},
        }
    )


def schema(*written: WrittenSchema) -> TableSchema:
    """The table's definition."""
    return replace(table_schema(RELATION, ("id",), TOPIC), written=written)


def form(formats: TableFormats, *written: WrittenSchema) -> ValueForm:
    """How the table's values are written, which is not JSON."""
    found = formats.form(schema(*written), COLUMNS)
    assert found is not None
    return found


def away() -> RegistryUnavailable:
    return RegistryUnavailable("the registry does not answer", remedy="wait")


def test_a_table_in_json_asks_nobody() -> None:
    registry = MemoryRegistry()
    assert TableFormats(configured(formats={"public.t": "json"}), registry).form(schema(), COLUMNS) is None
    assert registry.asked == []


def test_a_table_that_was_in_avro_keeps_its_schemas_on_record() -> None:
    """The log holds such values until the cleaner comes, and who begins at its first offset reads them."""
    before = form(TableFormats(configured(), MemoryRegistry()))
    found = form(TableFormats(configured(formats={"public.t": "json"}), MemoryRegistry()), *before.written)
    encoder = TableEncoder(RELATION, ("id",), TOPIC, found)
    assert encoder.value((b"1", b"x")) == b'{"id":1,"a":"x"}'
    assert (encoder.schema.format, encoder.schema.written) == ("json", before.written)
    assert ValueOpener([encoder.schema]).json(before.writer.encode((b"1", b"x"))) == b'{"id":1,"a":"x"}'


def test_rows_for_an_envelope_have_debeziums_form() -> None:
    chosen = DebeziumConfig(decimal_handling_mode="string", schemas_enable=True)
    config = configured(format="json", envelope="debezium").model_copy(update={"debezium": chosen})
    formats = TableFormats(config, None)
    found = form(formats)
    encoder = TableEncoder(RELATION, ("id",), TOPIC, found)
    assert encoder.schema.envelope == formats.envelope == DebeziumModes(decimal="string", schemas=True)
    assert encoder.value((b"1", b"x")) == b'{"id":1,"a":"x"}'
    assert encoder.old((b"1", None), is_full=False) == b'{"id":1,"a":null}', "an envelope has every column"
    assert encoder.key((b"1", None)) == b'{"id":1}'


def test_an_envelope_in_avro_has_a_schema_of_its_own() -> None:
    registry = MemoryRegistry()
    formats = TableFormats(configured({"subjects": "record"}, envelope="debezium"), registry)
    found = form(formats)
    assert registry.asked == ["register shop.public.t.Envelope AVRO"]
    encoder = TableEncoder(RELATION, ("id",), TOPIC, found)
    assert (encoder.schema.format, encoder.schema.envelope) == ("avro", DebeziumModes())
    row = encoder.value((b"1", b"x"))
    assert row == b"\x02\x02\x02x", "what surrounds it comes later"
    assert encoder.old((b"1", None), is_full=False) == b"\x02\x00", "an envelope has every column"
    assert encoder.key((b"1", None)) == b'{"id":1}'
    known = TableFormats(configured(envelope="debezium"), registry).form(encoder.schema, COLUMNS, encoder.schema)
    assert known is not None
    assert known.written == found.written, "a schema that is on record is not registered anew"


def test_a_topic_that_enters_the_envelope_is_not_compared_with_its_rows() -> None:
    """Rows and envelopes are different records: the registry tells them apart."""
    registry = MemoryRegistry()
    rows = TableEncoder(RELATION, ("id",), TOPIC, form(TableFormats(configured(), registry))).schema
    found = TableFormats(configured(envelope="debezium"), registry).form(rows, COLUMNS, rows)
    assert found is not None
    assert [each.schema_id for each in found.written] == [7, 8]
    assert found.written[-1].text != rows.written[-1].text


def test_modes_by_which_readers_would_misread_are_refused() -> None:
    columns = (COLUMNS[0], Column("at", 1114, -1, "pg_catalog.timestamp", False))
    relation, registry = replace(RELATION, columns=columns), MemoryRegistry()
    plain = table_schema(relation, ("id",), TOPIC)
    config = configured(envelope="debezium")
    last = TableEncoder(relation, ("id",), TOPIC, TableFormats(config, registry).form(plain, columns)).schema
    chosen = config.model_copy(update={"debezium": DebeziumConfig(time_precision_mode="nanoseconds")})
    with pytest.raises(RegistryRefused, match=r"column at was long .*MicroTimestamp.* and is long .*NanoTimestamp"):
        TableFormats(chosen, registry).form(last, columns, last)


def test_a_topic_that_left_the_envelope_says_so() -> None:
    formats = TableFormats(configured(format="json"), None)
    assert formats.envelope is None
    found = formats.form(replace(schema(), was_enveloped=True), COLUMNS)
    assert found is not None
    schema_now = TableEncoder(RELATION, ("id",), TOPIC, found).schema
    assert (schema_now.envelope, schema_now.was_enveloped) == (None, True)
    assert ValueOpener([schema_now]).is_needed


def test_a_new_schema_is_registered_before_a_row_is_written() -> None:
    registry = MemoryRegistry()
    found = form(TableFormats(configured(), registry))
    assert registry.asked == ["register shop.public.t-value AVRO"]
    assert found.written == (WrittenSchema(7, registry.schemas[7], "avro"),)
    encoder = TableEncoder(RELATION, ("id",), TOPIC, found)
    value = encoder.value((b"1", b"x"))
    assert value[:5] == b"\0\0\0\0\7"
    assert encoder.schema.format == "avro"
    assert encoder.key((b"1", b"x")) == b'{"id":1}'
    assert encoder.old((b"1", b"x"), is_full=True) == b'{"id":1,"a":"x"}', "what a history keeps is JSON"
    assert ValueOpener([encoder.schema]).json(value) == b'{"id":1,"a":"x"}'


@pytest.mark.parametrize("error", [RegistryUnavailable("away", remedy="wait"), RegistryRefused("401", remedy="log in")])
def test_a_schema_on_record_needs_no_registry(error: CdcError) -> None:
    registry = MemoryRegistry()
    known = form(TableFormats(configured(), registry)).written
    registry.asked, registry.error = [], error
    assert form(TableFormats(configured(), registry), *known).written == known
    assert registry.asked == ["text of 7"]


def pinned_by(number: int, text: str) -> TableSchema:
    """The definition that pins the id of a topic's keys."""
    return replace(schema(), key_schema=WrittenSchema(number, text, "avro"))


def key_text() -> str:
    """The schema of the table's keys."""
    return key_schema(schema(), "shop")


def test_keys_in_json_ask_nobody() -> None:
    registry = MemoryRegistry()
    assert TableFormats(configured(), registry).key_schema(schema()) is None
    assert registry.asked == []


def test_the_first_key_schema_is_registered_and_its_id_is_pinned() -> None:
    registry = MemoryRegistry()
    formats = TableFormats(configured(format="json", key_format="avro"), registry)
    found = formats.key_schema(schema())
    assert found == WrittenSchema(7, key_text(), "avro")
    assert registry.asked == ["register shop.public.t-key AVRO"]
    assert json.loads(key_text())["fields"] == [{"name": "id", "type": "long"}]
    assert formats.key_schema(schema(), pinned_by(7, key_text())) == found
    assert registry.asked == ["register shop.public.t-key AVRO"]
    encoder = TableEncoder(RELATION, ("id",), TOPIC, None, found)
    assert encoder.key((b"1", b"x")) == b"\0\0\0\0\7\2"
    assert encoder.fingerprint != TableEncoder(RELATION, ("id",), TOPIC).fingerprint
    assert parse_schema(schema_value(encoder.schema)) == encoder.schema


@pytest.mark.parametrize("error", [away(), RegistryRefused("no", remedy="log in")], ids=["away", "refuses"])
def test_a_pinned_id_needs_no_registry(error: CdcError) -> None:
    formats = TableFormats(configured(key_format="avro"), MemoryRegistry(error=error))
    assert formats.key_schema(schema(), pinned_by(5, key_text())) == WrittenSchema(5, key_text(), "avro")
    with pytest.raises(type(error)):
        TableFormats(configured(key_format="avro"), MemoryRegistry(error=error)).key_schema(schema())


def test_a_registry_with_another_id_does_not_hide_it() -> None:
    """The new id is another key of each row, so the topic has to begin anew (``Successions``)."""
    registry = MemoryRegistry({5: '"string"'})
    formats = TableFormats(configured(key_format="avro"), registry)
    assert formats.key_schema(schema(), pinned_by(5, key_text())) == WrittenSchema(7, key_text(), "avro")
    registry.schemas[5] = key_text()
    assert formats.key_schema(schema(), pinned_by(5, key_text())) == WrittenSchema(5, key_text(), "avro")


def test_an_id_that_other_keys_begin_with_is_refused() -> None:
    formats, ids = TableFormats(configured(key_format="avro"), MemoryRegistry()), {7: WrittenSchema(7, "{}", "avro")}
    with pytest.raises(RegistryRefused, match=r"gives the schema id 7, but topic shop\.public\.t has keys that begin"):
        formats.key_schema(schema(), pinned_by(7, "{}"), ids)


def test_a_schema_on_record_is_compared_once_a_session() -> None:
    registry = MemoryRegistry()
    known = form(TableFormats(configured(), registry)).written
    formats, registry.asked = TableFormats(configured(), registry), []
    assert form(formats, *known).written == form(formats, *known).written == known
    assert registry.asked == ["text of 7"]


def test_a_schema_that_the_registry_lost_is_registered_anew() -> None:
    registry = MemoryRegistry()
    known = form(TableFormats(configured(), registry)).written
    registry.schemas, registry.next_id = {7: "another"}, 30
    found = form(TableFormats(configured(), registry), *known)
    assert found.written == (*known, WrittenSchema(30, known[0].text, "avro"))
    assert form(TableFormats(configured(), registry), *found.written).written == found.written, "the newest id counts"


def test_an_id_of_another_schema_on_record_is_refused() -> None:
    """A reader could not tell the values apart."""
    ids = {7: WrittenSchema(7, "another", "avro")}
    with pytest.raises(RegistryRefused, match=r"id 7, but topic shop\.public\.t has values that begin with this id"):
        TableFormats(configured(), MemoryRegistry()).form(schema(), COLUMNS, ids=ids)


@pytest.mark.parametrize(
    ("was", "now", "is_told_apart"),
    [
        ("numeric(6,2)", "numeric(8,2)", True),
        ("numeric(6,2)", "numeric(8,3)", False),
        ("numeric(6,2)", "numeric", False),
        ("text", "bytea", False),
        ("text", "varchar(9)", True),
        ("text", "uuid", True),
        ("int4", "int8", True),
        ("int4", "text", True),  # which the registry itself refuses
        ("int8", "timestamp", False),
        ("timestamp", "timestamptz", False),
        ("int4", "date", False),
        ("float8", "date", False),
        ("numeric(6,2)[]", "numeric(6,3)[]", False),
        ("numeric(6,2)", "numeric(6,3)[]", True),
    ],
)
def test_a_change_that_readers_would_misread_is_refused_unless_the_subject_takes_all(
    was: str, now: str, is_told_apart: bool
) -> None:
    """Registries compare types without their logical types: a decimal of another scale is the same to them."""
    texts = [
        avro_schema(
            TableSchema("f" * 16, "public", "t", TOPIC, ("id",), (SchemaColumn("id", "int4"), SchemaColumn("a", each))),
            "shop",
            beyond="refuse",
        )
        for each in (was, now)
    ]
    assert (misread(*texts) == ()) is is_told_apart
    assert (misread(*reversed(texts)) == ()) is is_told_apart
    assert is_told_apart or misread(*texts) == (f"column a was {was} and is {now}",)


def test_a_misread_column_leaves_its_table_out_until_the_subject_takes_all() -> None:
    registry = MemoryRegistry()
    last = replace(schema(), columns=(SchemaColumn("id", "int4"), SchemaColumn("a", "bytea")))
    last = replace(last, format="avro", written=(WrittenSchema(3, avro_schema(last, "shop", "refuse"), "avro"),))
    with pytest.raises(RegistryRefused, match=r"column a was bytea and is text: a reader with the former schema"):
        TableFormats(configured(), registry).form(schema(), COLUMNS, last)
    assert registry.asked == ["compatibility of shop.public.t-value"]
    registry.mode = "NONE"
    assert TableFormats(configured(), registry).form(schema(), COLUMNS, last) is not None


def test_a_column_that_comes_back_is_compared_with_older_schemas_in_a_transitive_mode_only() -> None:
    registry = MemoryRegistry()
    texts = [
        avro_schema(replace(schema(), columns=(SchemaColumn("id", "int4"), *more)), "shop", "refuse")
        for more in ((SchemaColumn("a", "bytea"),), ())
    ]
    ids = {number: WrittenSchema(number, text, "avro") for number, text in enumerate(texts, 3)}
    last = replace(schema(ids[4]), format="avro")
    assert TableFormats(configured(), registry).form(schema(), COLUMNS, last, ids) is not None
    registry.mode = "BACKWARD_TRANSITIVE"
    with pytest.raises(RegistryRefused, match=r"column a was bytea and is text"):
        TableFormats(configured(), registry).form(schema(), COLUMNS, last, ids)


@pytest.mark.parametrize("is_enveloped", [True, False])
def test_schemas_of_rows_are_not_compared_with_those_of_events(is_enveloped: bool) -> None:
    """The topic held both, of another generation each. Older ones of the same kind count in a transitive mode."""
    modes = DebeziumModes()
    former = [
        replace(schema(), columns=(SchemaColumn("id", "int4"), *more)) for more in ((SchemaColumn("a", "bytea"),), ())
    ]
    rows = [avro_schema(each, "shop", "refuse") for each in former]
    events = [envelope_schema(each, modes) for each in former]
    ids = {number: WrittenSchema(number, text, "avro") for number, text in enumerate((*rows, *events), 3)}
    last = replace(schema(ids[6 if is_enveloped else 4]), format="avro", envelope=modes if is_enveloped else None)
    registry = MemoryRegistry()
    formats = TableFormats(configured(envelope="debezium" if is_enveloped else "plain"), registry)
    assert formats.form(schema(), COLUMNS, last, ids) is not None
    registry.mode = "BACKWARD_TRANSITIVE"
    with pytest.raises(RegistryRefused, match=r"column a was .*bytes.* and is|column a was bytea and is text"):
        formats.form(replace(schema(), fingerprint="b" * 16), COLUMNS, last, ids)


def test_a_schema_keeps_what_the_former_one_of_its_topic_had() -> None:
    """A registry in its usual mode takes the drop of a column only if the schema still describes former rows."""
    registry, config = MemoryRegistry(), configured(format="json-schema")
    both = form(TableFormats(config, registry))
    last = replace(schema(*both.written), format="json-schema")
    one = replace(schema(), columns=last.columns[:1])
    found = TableFormats(config, registry).form(one, COLUMNS[:1], last)
    assert found is not None
    assert read_schema(found.written[0].text).dropped == {"a": "text"}
    last = replace(one, format="json-schema", written=found.written)
    again = TableFormats(config, registry).form(last, COLUMNS[:1], last)
    assert again is not None
    assert again.written == found.written, "a restart registers nothing new"
    in_avro = replace(last, format="avro")
    other = TableFormats(config, registry).form(one, COLUMNS[:1], in_avro)
    assert other is not None
    assert read_schema(other.written[0].text).dropped == {}, "the topic begins anew"


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize(
    ("strategy", "theirs"),
    [
        ("topic", topic_subject_name_strategy),
        ("record", record_subject_name_strategy),
        ("topic-record", topic_record_subject_name_strategy),
    ],
)
def test_subjects_are_those_of_confluents_serializers(
    name: str, strategy: str, theirs: Callable[[SerializationContext, str], str]
) -> None:
    registry = MemoryRegistry()
    form(TableFormats(configured({"subjects": strategy}, format=name), registry))
    described = json.loads(registry.schemas[7])
    record = described["title"] if name == "json-schema" else f"{described['namespace']}.{described['name']}"
    asked = registry.asked.pop().split()[1]
    assert asked == theirs(SerializationContext(TOPIC, MessageField.VALUE), record)
    form(
        TableFormats(
            configured({"subjects": strategy, "context": "eu"}, format=name), MemoryRegistry(asked=registry.asked)
        )
    )
    assert registry.asked.pop().split()[1] == f":.eu:{asked}"


def test_another_strategy_keeps_the_ids_on_record_and_carries_the_former_schema_over() -> None:
    registry = MemoryRegistry()
    known = form(TableFormats(configured(), registry)).written
    formats, registry.asked = TableFormats(configured({"subjects": "record"}), registry), []
    last = replace(schema(*known), format="avro")
    found = formats.form(last, COLUMNS, last)
    assert found is not None
    assert (found.written, registry.asked) == (known, ["text of 7"]), "a schema that is the same is not registered anew"
    wider = (*COLUMNS, Column("b", 23, -1, "pg_catalog.int4", False))
    new = table_schema(replace(RELATION, columns=wider), ("id",), TOPIC)
    registry.asked = []
    assert formats.form(new, wider, last) is not None
    assert registry.asked == [
        "kind of shop.public.t",
        "register shop.public.t AVRO",
        "register shop.public.t AVRO",
    ]
    assert registry.schemas[7] == known[0].text


def test_a_subject_has_one_language() -> None:
    registry = MemoryRegistry(language="AVRO")
    ids = {3: WrittenSchema(3, "another", "avro")}
    formats = TableFormats(configured(format="json-schema"), registry)
    with pytest.raises(RegistryRefused, match=r"subject shop\.public\.t-value has schemas in AVRO") as refused:
        formats.form(schema(), COLUMNS, ids=ids)
    assert "delete subject shop.public.t-value" in refused.value.remedy
    assert registry.schemas == {}
    registry.language = None
    assert formats.form(schema(), COLUMNS, ids=ids) is not None


def test_a_registry_that_is_away_is_not_asked_for_each_table() -> None:
    registry, now = MemoryRegistry(error=away()), 100.0
    formats = TableFormats(configured(), registry, clock=lambda: now)
    for _ in range(3):
        with pytest.raises(RegistryUnavailable, match="does not answer"):
            form(formats)
    assert len(registry.asked) == 1
    now, registry.error = 105.0, None
    assert form(formats).written[0].schema_id == 7


def test_values_of_two_schemas_are_opened_and_an_unknown_one_is_named() -> None:
    registry = MemoryRegistry()
    first = form(TableFormats(configured(), registry))
    second = form(TableFormats(configured(beyond="text"), registry), *first.written)
    assert [each.schema_id for each in second.written] == [7], "no column of this table has values beyond its type"
    opener = ValueOpener([schema(*first.written)])
    value = first.writer.encode((b"1", None))
    assert opener.json(value) == b'{"id":1,"a":null}'
    assert opener.json(b'{"id":1}') == b'{"id":1}'
    with pytest.raises(ValueError, match="schema 8, which is in no definition"):
        opener.json(b"\0\0\0\0\10" + value[5:])


def test_a_reader_that_goes_on_learns_new_schemas() -> None:
    found = form(TableFormats(configured(), MemoryRegistry()))
    opener = ValueOpener([schema()], again=lambda: [schema(*found.written)])
    assert opener.json(found.writer.encode((b"1", b"x"))) == b'{"id":1,"a":"x"}'
