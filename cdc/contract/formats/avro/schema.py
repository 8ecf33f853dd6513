"""Makes the Avro schema of a table, and restores the table from such a schema.

A reader needs the schema alone: its properties ``pg`` hold the true names, the types as ``__schemas`` spells them, the
key and the fingerprint. Schemas of other programs are refused, so each field has exactly the type that its ``pg`` says.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from cdc.contract.formats.avro.types import AvroType, are_told_apart, avro_type
from cdc.contract.formats.names import mangled, original
from cdc.contract.formats.registered import Beyond
from cdc.contract.record import SchemaColumn, TableSchema


class AvroColumn(NamedTuple):
    """A column as a schema describes it.

    Attributes:
        name: its name in the table.
        sql_type: its type, as ``__schemas`` spells it.
        type: its Avro type.
        is_key: whether it belongs to the key, so that it is never NULL.
        has_text: whether the field can also hold a text, for values that are beyond its type.
    """

    name: str
    sql_type: str
    type: AvroType
    is_key: bool
    has_text: bool


class AvroTable(NamedTuple):
    """What a schema says: the bridge's name, and the table.

    Attributes:
        bridge: the name of the bridge.
        table: the definition; its topic, relation id, type oids and labels are unknown.
        columns: the columns, in the order of the fields.
    """

    bridge: str
    table: TableSchema
    columns: tuple[AvroColumn, ...]


def avro_schema(table: TableSchema, name: str, beyond: Beyond) -> str:
    """Returns the schema of a table's values; the same table always has the same text.

    Args:
        table: the definition.
        name: the bridge's name.
        beyond: what becomes of values that their Avro type cannot hold.
    """
    return orjson.dumps(_record(table, name, beyond)).decode()


def read_schema(schema: str) -> AvroTable:
    """Read a schema that ``avro_schema`` made; spaces and the order of members do not matter.

    Raises:
        ValueError: the schema is not in this form; the message names what is foreign.
    """
    try:
        given = orjson.loads(schema)
    except ValueError as error:
        raise ValueError(f"the schema is not JSON: {error}") from error
    bridge, table = _table_of(given)
    refusing, holding = _record(table, bridge, "refuse"), _record(table, bridge, "text")
    for each, refused, held in zip(given["fields"], refusing["fields"], holding["fields"], strict=True):
        if each not in (refused, held):
            raise ValueError(f"the schema's field {each.get('name')!r} does not have the form that cdc writes")
    if given not in (refusing, holding):
        raise ValueError(f"the schema does not have the form that cdc writes: {_foreign(given, refusing)}")
    has_text = given == holding
    columns = (_column(column, table.key, has_text=has_text) for column in table.columns)
    return AvroTable(bridge, table, tuple(columns))


def is_same_schema(one: str, other: str) -> bool:
    """Whether two texts are the same schema; registries may write one anew, with other spaces and in another order."""
    try:
        return bool(orjson.loads(one) == orjson.loads(other))
    except orjson.JSONDecodeError:
        return False


def misread(former: str, now: str) -> tuple[str, ...]:
    """Returns the columns whose values one schema would take for something else than the other, without any error.

    Registries compare types as Avro resolves them, without their logical types: a decimal of another scale, a date in
    place of a number, text in place of bytes are all the same to them.

    Args:
        former: the schema with which the topic was last written.
        now: the schema to be registered.
    """
    was = {column.name: column for column in read_schema(former).columns}
    pairs = ((was[column.name], column) for column in read_schema(now).columns if column.name in was)
    return tuple(
        f"column {new.name} was {old.sql_type} and is {new.sql_type}"
        for old, new in pairs
        if old.type.is_array == new.type.is_array and not are_told_apart(old.type, new.type)
    )


def _column(column: SchemaColumn, key: tuple[str, ...], *, has_text: bool) -> AvroColumn:
    found = avro_type(column.sql_type)
    return AvroColumn(column.name, column.sql_type, found, column.name in key, has_text and found.is_narrow)


def _record(table: TableSchema, bridge: str, beyond: Beyond) -> dict[str, Any]:
    return {
        "type": "record",
        "name": mangled(table.name),
        "namespace": f"{mangled(bridge)}.{mangled(table.namespace)}",
        "pg": {"table": [table.namespace, table.name], "key": list(table.key), "fingerprint": table.fingerprint},
        "fields": [_field(column, table.key, beyond) for column in table.columns],
    }


def _field(column: SchemaColumn, key: tuple[str, ...], beyond: Beyond) -> dict[str, Any]:
    found = _column(column, key, has_text=beyond == "text")
    text = ["string"] if found.has_text else []
    origin: dict[str, Any] = {"name": column.name, "type": column.sql_type}
    if column.number:
        origin["number"] = column.number
    if found.is_key:
        return {
            "name": mangled(column.name),
            "type": [found.type.schema, *text] if text else found.type.schema,
            "pg": origin,
        }
    return {
        "name": mangled(column.name),
        "type": ["null", found.type.schema, *text],
        "default": None,
        "pg": origin,
    }


_FOREIGN: Final = "the schema was not written by cdc"


def _table_of(given: Any) -> tuple[str, TableSchema]:
    """Returns the bridge's name and the definition, as far as the properties have the right types."""
    origin = _member(given, "pg", dict, "the record")
    names, key = (_texts(_member(origin, name, list, "the record's pg"), name) for name in ("table", "key"))
    if len(names) != 2:
        raise ValueError(f"{_FOREIGN}: the record's pg.table is not a namespace and a name")
    bridge, dot, _ = _member(given, "namespace", str, "the record").partition(".")
    if not dot:
        raise ValueError(f"{_FOREIGN}: the record's namespace does not begin with the bridge's name")
    fields = _member(given, "fields", list, "the record")
    columns = tuple(_column_of(field, place) for place, field in enumerate(fields, 1))
    fingerprint = _member(origin, "fingerprint", str, "the record's pg")
    return original(bridge), TableSchema(fingerprint, names[0], names[1], "", key, columns)


def _column_of(field: Any, place: int) -> SchemaColumn:
    origin = _member(field, "pg", dict, f"field {place}")
    where = f"the pg of field {place}"
    number = _member(origin, "number", int, where) if "number" in origin else 0
    return SchemaColumn(_member(origin, "name", str, where), _member(origin, "type", str, where), number)


def _member(holder: Any, name: str, kind: type, where: str) -> Any:
    found = holder.get(name) if type(holder) is dict else None
    if type(found) is not kind:
        raise ValueError(f"{_FOREIGN}: {where} has no {name} of the right kind")
    return found


def _texts(items: list[Any], name: str) -> tuple[str, ...]:
    if not all(type(item) is str for item in items):
        raise ValueError(f"{_FOREIGN}: the record's pg.{name} does not consist of names")
    return tuple(items)


def _foreign(given: dict[str, Any], ours: dict[str, Any]) -> str:
    members = sorted({*given, *ours} - {"fields"})
    differing = [name for name in members if given.get(name) != ours.get(name) or (name in given) != (name in ours)]
    return f"member {differing[0]!r}" if differing else "only some of the fields hold texts"
