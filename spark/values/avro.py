"""Turns values into the JSON objects of the same rows: those in Avro by Spark's own reader and expressions.

No row in Avro passes through Python (what ``protobuf.py`` and ``debezium.py`` read does), and nothing here is the
bridge's: ``from_avro`` decodes, and the texts are made of what it returns. A value that cannot be read becomes a text
in parentheses, which every job refuses as it refuses damaged JSON: it equals no row, and its place is told.

The expression is SQL. Columns of one form are gathered in an array and turned into texts by one lambda function, so the
SQL grows by a few characters per column, and Spark can interpret it whatever the number of columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cdc.contract.record import TableSchema, WrittenSchema
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.topic import header_field
from cdc.spark.values.avro_texts import literal, text_of
from cdc.spark.values.debezium import event_object
from cdc.spark.values.debezium_avro import is_event_schema
from cdc.spark.values.formed import refuse_forms
from cdc.spark.values.protobuf import protobuf_object

_END: Final = bytes.fromhex("f1c3a5870f1e2d4b")
"""Follows each value while it is decoded, and is a field of its own. So a value that is too short, or that goes on
after its last column, is noticed. No proper prefix of it is also its suffix, so it is never found at a wrong place."""


class _Field(NamedTuple):
    """A column of a schema.

    Attributes:
        name: its name in the table.
        schema: its type, as Spark's reader gets it.
        text: its JSON, as SQL over ``x``.
    """

    name: str
    schema: Any
    text: str


def opened(records: DataFrame, definitions: Iterable[TableSchema]) -> DataFrame:
    """Returns records with the JSON object in place of each value in another form.

    Args:
        records: have ``value`` binary and ``header`` string.
        definitions: all definitions of the records' topic, read after the records' ends were pinned.

    Raises:
        TopicUnreadable: a definition names a schema that is not of the topic contract.
    """
    known = list(definitions)
    return replaced(records, "value", as_object(known)) if need_opening(known) else records


def opened_of_many(records: DataFrame, definitions: Mapping[str, Iterable[TableSchema]]) -> DataFrame:
    """Does the same for records of several topics, which a column ``topic`` names; ``definitions`` are by topic."""
    value, needed = fn.col("value"), False
    for topic, given in definitions.items():
        known = list(given)
        if need_opening(known):
            needed, value = True, fn.when(fn.col("topic") == topic, as_object(known)).otherwise(value)
    return replaced(records, "value", value) if needed else records


def need_opening(definitions: Iterable[TableSchema]) -> bool:
    """Tells whether a value of these definitions may be anything but a row in JSON's default form."""
    return any(
        each.written or each.envelope is not None or each.was_enveloped or each.is_formed for each in definitions
    )


def replaced(frame: DataFrame, name: str, column: Column) -> DataFrame:
    """Returns the DataFrame with a column made of ``as_object``.

    Raises:
        JobError: Spark's reader of Avro is not among the jars.
    """
    try:
        return frame.withColumn(name, column)
    except AnalysisException as error:
        if "AVRO_NOT_LOADED" in (error.getCondition() or ""):
            raise JobError(
                "topics hold values in Avro, but the jars that the configuration or --jars names cannot read them",
                remedy="add the jar org.apache.spark:spark-avro_2.13 of Spark's version",
            ) from error
        raise


def as_object(definitions: Iterable[TableSchema], value: str = "value", header: str = "header") -> Column:
    """Returns the JSON objects of values with schemas, and of change events; null, JSON and all else stay as they are.

    An event that deletes becomes null, as the tombstone is that follows it.

    Args:
        definitions: as for ``opened``.
        value: the name of a binary column.
        header: the name of the column with the records' headers.

    Raises:
        TopicUnreadable: a definition names a schema that is not of the topic contract.
        JobError: a definition says that values are in other forms than JSON's default.
    """
    known = list(definitions)
    refuse_forms(known)
    texts = fn.lit("(a value whose schema is in no definition of the schemas topic)")
    for condition, written in _by_schema(known, value, header):
        texts = fn.when(condition, _object(written, value)).otherwise(texts)
    found = fn.when(fn.expr(f"startswith({value}, X'00')"), texts.cast("binary")).otherwise(fn.col(value))
    if not any(each.envelope is not None or each.was_enveloped for each in known):
        return found
    event = event_object(known, value, header).cast("binary")
    return fn.when(header_field("envelope", fn.col(header)).isNotNull(), event).otherwise(found)


def ids_in(value: str = "value") -> Column:
    """Returns the schema's id of each value in Avro or Protobuf; null for other values."""
    return fn.expr(f"CASE WHEN startswith({value}, X'00') THEN CAST(conv(hex({_id(value)}), 16, 10) AS bigint) END")


def _id(value: str) -> str:
    return f"substring({value}, 2, 4)"


def _by_schema(definitions: Iterable[TableSchema], value: str, header: str) -> Iterable[tuple[Column, WrittenSchema]]:
    """Yields each schema once, after the condition for values that were written with it."""
    ids: dict[WrittenSchema, dict[int, list[str]]] = {}
    texts: dict[int, set[str]] = {}
    for definition in definitions:
        for each in definition.written:
            if each.format == "avro" and is_event_schema(each.text):
                continue  # their headers tell them
            schema = each._replace(schema_id=0)
            ids.setdefault(schema, {}).setdefault(each.schema_id, []).append(definition.fingerprint)
            texts.setdefault(each.schema_id, set()).add(each.text)
    for schema, found in ids.items():
        condition: Column | None = None
        for number, fingerprints in found.items():
            is_it = fn.expr(f"{_id(value)} = X'{number:08X}'")
            # A registry that lost its ids may have given one of them to two schemas. The header tells them apart.
            if len(texts[number]) > 1:
                is_it &= fn.coalesce(header_field("schema", fn.col(header)).isin(*fingerprints), fn.lit(False))
            condition = is_it if condition is None else condition | is_it
        assert condition is not None
        yield condition, schema


def _object(written: WrittenSchema, value: str) -> Column:
    """Returns the objects of values with this schema; what other values become is of no use."""
    match written.format:
        case "protobuf":
            return protobuf_object(written.text, fn.col(value))
        case "json-schema":
            return fn.expr(_described(value))
    return fn.expr(_row(written.text, value))


def _described(value: str) -> str:
    """Returns SQL for the object of a value with a JSON Schema, which follows the head as it is."""
    return (
        f"CASE WHEN startswith(substring({value}, 6), X'7B') AND endswith({value}, X'7D') THEN "
        f"CAST(substring({value}, 6) AS string) ELSE '(JSON that is cut or damaged)' END"
    )


def _row(schema: str, value: str) -> str:
    """Returns SQL for the object of a value with this schema."""
    fields = _fields(schema)
    decoded = [{"name": f"f{place}", "type": each.schema} for place, each in enumerate(fields)]
    end = {"name": "end", "type": {"type": "fixed", "name": "end_of_value", "size": len(_END)}}
    record = {"type": "record", "name": "row", "fields": [*decoded, end]}
    whole = f"concat(substring({value}, 6), X'{_END.hex()}')"
    row = f"from_avro({whole}, {literal(json.dumps(record))}, map('mode', 'PERMISSIVE'))"
    forms: dict[tuple[str, str], list[int]] = {}
    for place, each in enumerate(fields):
        forms.setdefault((json.dumps(each.schema), each.text), []).append(place)
    cells = []
    for (_, text), places in forms.items():
        cells.append(f"transform(array({','.join(f'r.f{place}' for place in places)}), x -> {text})")
    order = {place: number for number, place in enumerate(place for places in forms.values() for place in places)}
    parts = []
    for place, each in enumerate(fields):
        name = ("{" if place == 0 else ",") + json.dumps(each.name, ensure_ascii=False) + ":"
        parts += [literal(name), f"c[{order[place]}]"]
    members = f"concat({','.join(parts)},'}}')" if fields else "'{}'"
    joined = f"element_at(transform(array(concat({','.join(cells)})), c -> {members}), 1)" if fields else members
    damaged = "'(Avro that is cut or damaged)'"
    return f"element_at(transform(array({row}), r -> IF(r.end <=> X'{_END.hex()}', {joined}, {damaged})), 1)"


def _fields(schema: str) -> list[_Field]:
    try:
        return [_field(each) for each in json.loads(schema)["fields"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TopicUnreadable(
            f"the schemas topic holds an Avro schema that cdc did not write ({error!r}): {schema[:200]}",
            remedy="find out who else writes into it",
        ) from error


def _field(field: Mapping[str, Any]) -> _Field:
    sql_type = field["pg"]["type"]
    given = field["type"]
    branches = given if isinstance(given, list) else [given]
    is_nullable = branches[0] == "null"
    kind, *beyond = branches[1:] if is_nullable else branches
    if beyond not in ([], ["string"]):
        raise ValueError(f"a union of {branches}")
    form = text_of(kind, sql_type)
    decoded = [*(["null"] if is_nullable else []), form.schema, *beyond]
    if beyond:
        text = (
            "CASE WHEN x IS NULL THEN 'null' WHEN x.member0 IS NOT NULL THEN "
            f"{form.sql('x.member0')} ELSE {form.beyond('x.member1')} END"
        )
    else:
        text = f"CASE WHEN x IS NULL THEN 'null' ELSE {form.sql('x')} END"
    return _Field(field["pg"]["name"], decoded if len(decoded) > 1 else decoded[0], text)
