"""Makes the JSON Schema of a table, and restores what cdc wrote into such a schema.

Theory of operation. The content model is closed: a row has the columns of its table and no others. So a registry in its
usual mode, BACKWARD, takes a new column. To let it take the drop of a column as well, the schema keeps the columns that
former schemas of the topic had, marked as dropped: rows that have them are still in the topic. With an open model it
would be the other way round, and no registry would take a new column, which is the most frequent change.

Properties ``pg`` hold the types as ``__schemas`` spells them, the key and the fingerprint. Registries and readers do
not look at words that JSON Schema does not define.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from cdc.contract.formats.json_schema.types import family, value_schema
from cdc.contract.formats.names import mangled
from cdc.contract.formats.registered import Beyond
from cdc.contract.record import SchemaColumn, TableSchema

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
"""Draft 7 is the newest that all registries with Confluent's API compare."""
_FOREIGN: Final = "the schema was not written by cdc"


class _KnownColumns(NamedTuple):
    """What a schema says about its table.

    Attributes:
        types: the SQL type of each column that rows have.
        dropped: the SQL type of each column that rows of former schemas have.
    """

    types: Mapping[str, str]
    dropped: Mapping[str, str]


def json_schema(table: TableSchema, name: str, _: Beyond) -> str:
    """Returns the schema of a table's values; the same table always has the same text.

    Args:
        table: the definition.
        name: the bridge's name.
        _: has no meaning here, because JSON holds every value.
    """
    # In the form of an Avro record's full name: two tables never have the same, whatever dots their names have.
    title = f"{mangled(name)}.{mangled(table.namespace)}.{mangled(table.name)}"
    document = {
        "$schema": _DRAFT,
        "title": title,
        "type": "object",
        "pg": {"table": [table.namespace, table.name], "key": list(table.key), "fingerprint": table.fingerprint},
        "properties": {column.name: _property(column, table.key) for column in table.columns},
        "required": list(table.key),
        "additionalProperties": False,
    }
    return orjson.dumps(document).decode()


def succeeding(former: str, now: str) -> str:
    """Returns the schema with the columns that a former one had and it has not, so that former rows are valid by it."""
    was, document = read_schema(former), orjson.loads(now)
    properties = document["properties"]
    for name, sql_type in {**was.dropped, **was.types}.items():
        if name not in properties:
            properties[name] = _dropped(name, sql_type)
    return orjson.dumps(document).decode()


def read_schema(schema: str) -> _KnownColumns:
    """Read a schema that ``json_schema`` or ``succeeding`` made; spaces and the order of members do not matter.

    Raises:
        ValueError: the schema is not in this form; the message names what is foreign.
    """
    try:
        given = orjson.loads(schema)
    except ValueError as error:
        raise ValueError(f"the schema is not JSON: {error}") from error
    origin = _member(given, "pg", dict, "it")
    key = _member(origin, "key", list, "its pg")
    properties = _member(given, "properties", dict, "it")
    types: dict[str, str] = {}
    dropped: dict[str, str] = {}
    for name, found in properties.items():
        column = _member(found, "pg", dict, f"property {name!r}")
        sql_type = _member(column, "type", str, f"the pg of property {name!r}")
        if column.get("dropped"):
            dropped[name], ours = sql_type, _dropped(name, sql_type)
        else:
            number = column.get("number", 0)
            types[name], ours = sql_type, _property(SchemaColumn(name, sql_type, number), key)
        if found != ours:
            raise ValueError(f"{_FOREIGN}: property {name!r} does not have the form that cdc writes")
    if given.get("type") != "object" or given.get("additionalProperties") is not False or given.get("required") != key:
        raise ValueError(f"{_FOREIGN}: it does not describe a row")
    return _KnownColumns(types, dropped)


def is_same_schema(one: str, other: str) -> bool:
    """Whether two texts are the same schema; registries may write one anew, with other spaces and in another order."""
    try:
        return bool(orjson.loads(one) == orjson.loads(other))
    except orjson.JSONDecodeError:
        return False


def misread(former: str, now: str) -> tuple[str, ...]:
    """Returns the columns whose texts one schema would take for something else than the other, without any error.

    To JSON Schema, a text, the hexadecimal digits of a ``bytea``, a string in a document and the text of an array with
    bounds of its own are all strings.

    Args:
        former: the schema with which the topic was last written.
        now: the schema to be registered.
    """
    was, types = read_schema(former), read_schema(now).types
    known = {**was.dropped, **was.types}
    return tuple(
        f"column {name} was {known[name]} and is {sql_type}"
        for name, sql_type in types.items()
        if name in known and family(known[name]) != family(sql_type)
    )


def _property(column: SchemaColumn, key: tuple[str, ...] | list[str]) -> dict[str, Any]:
    origin: dict[str, Any] = {"name": column.name, "type": column.sql_type}
    if column.number:
        origin["number"] = column.number
    return {**value_schema(column.sql_type, is_nullable=column.name not in key), "pg": origin}


def _dropped(name: str, sql_type: str) -> dict[str, Any]:
    return {**value_schema(sql_type, is_nullable=True), "pg": {"name": name, "type": sql_type, "dropped": True}}


def _member(holder: Any, name: str, kind: type, where: str) -> Any:
    found = holder.get(name) if type(holder) is dict else None
    if type(found) is not kind:
        raise ValueError(f"{_FOREIGN}: {where} has no {name} of the right kind")
    return found
