"""Makes the Avro schema of an envelope, as Apicurio's AvroConverter registers it for Debezium's connector. Pure.

The converter makes it of Connect's schema, and keeps what Avro has no word for as properties: ``connect.name``,
``connect.version``, ``connect.parameters``. Names become Avro's as with Debezium's ``schema.name.adjustment.mode`` and
``field.name.adjustment.mode`` ``avro``: each other character becomes an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from cdc.base.errors import RegistryRefused
from cdc.contract.formats.debezium.schema import connect_schema
from cdc.contract.record import DebeziumModes, TableSchema

_PRIMITIVES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int16", "int32"), "int"),
    "int64": "long",
    **{each: each for each in ("boolean", "float", "double", "bytes", "string")},
}
_PROPERTIES: Final = {
    "doc": "connect.doc",
    "version": "connect.version",
    "parameters": "connect.parameters",
    "default": "connect.default",
    "name": "connect.name",
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_ANY_PRECISION: Final = 64
"""What the converter writes of a decimal without a precision, such as money."""
_NOT_IN_FIELDS: Final = re.compile("^[^A-Za-z_]|[^A-Za-z0-9_]")
_NOT_IN_NAMES: Final = re.compile("^[^A-Za-z_]|[^A-Za-z0-9_.]")
_PROMOTED: Final = (frozenset({"int", "long", "float", "double"}), frozenset({"bytes", "string"}))
"""Types that Avro's schema resolution reads as each other."""


def envelope_schema(table: TableSchema, modes: DebeziumModes) -> str:
    """Returns the schema of a table's envelopes; the same arguments always make the same text.

    Raises:
        RegistryRefused: two columns have the same name in Avro.
    """
    schema = connect_schema(_adjusted(table), modes)
    return orjson.dumps(_bare(schema, set())).decode()


def envelope_name(table: TableSchema) -> str:
    """Returns the name of the record in the schema."""
    return _NOT_IN_NAMES.sub(_underscores, f"{table.topic}.Envelope")


def row_fields(text: str) -> list[dict[str, Any]]:
    """Returns the fields of a row in the schema of an envelope.

    Raises:
        ValueError: the schema is not that of an envelope.
    """
    try:
        row: list[dict[str, Any]] = orjson.loads(text)["fields"][0]["type"][1]["fields"]
    except (LookupError, TypeError) as error:
        raise ValueError(f"not the schema of an envelope: {text[:60]}") from error
    return row


def misread_events(former: str, now: str) -> tuple[str, ...]:
    """Returns the columns whose values one schema would take for something else than the other, without any error.

    Registries compare types as Avro resolves them, without ``connect.name``: milliseconds and microseconds, or bytes
    and text, are all the same to them.

    Args:
        former: the schema with which the topic was last written.
        now: the schema to be registered.

    Raises:
        ValueError: one of them is not the schema of an envelope.
    """
    was = {field["name"]: field["type"] for field in row_fields(former)}
    pairs = ((field["name"], was[field["name"]], field["type"]) for field in row_fields(now) if field["name"] in was)
    return tuple(
        f"column {name} was {_in_words(old)} and is {_in_words(new)}"
        for name, old, new in pairs
        if _is_misread(_value_type(old), _value_type(new))
    )


def _is_misread(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    one, other = old["type"], new["type"]
    if one == other == "array":
        return _is_misread(_value_type(old["items"]), _value_type(new["items"]))
    if one == other == "string" or not any({one, other} <= alike for alike in _PROMOTED):
        return False
    return "string" in (one, other) or _meaning(old) != _meaning(new)


def _meaning(of: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what tells how the numbers of a type are to be read; more digits change nothing."""
    parameters = of.get("connect.parameters", {})
    return of.get("connect.name"), parameters.get("scale"), parameters.get("length")


def _value_type(given: Any) -> Mapping[str, Any]:
    """Returns a type without NULL, with its properties."""
    kind = next(each for each in given if each != "null") if isinstance(given, list) else given
    return kind if isinstance(kind, dict) else {"type": kind}


def _in_words(given: Any) -> str:
    kind = _value_type(given)
    items = f" of {_in_words(kind['items'])}" if "items" in kind else ""
    said = [each for each in (kind.get("connect.name"), kind.get("connect.parameters")) if each]
    return f"{kind['type']}{items}{f' ({orjson.dumps(said).decode()[1:-1]})' if said else ''}"


def _adjusted(table: TableSchema) -> TableSchema:
    """Returns the table with names that Avro allows.

    Raises:
        RegistryRefused: two columns have the same name then.
    """
    names = {each.name: _NOT_IN_FIELDS.sub(_underscores, each.name) for each in table.columns}
    for one, other in _alike(names):
        raise RegistryRefused(
            f"columns {one!r} and {other!r} are both {names[one]!r} in Avro, as Debezium adjusts names",
            remedy="rename one of them; or leave it out of the publication with a column list",
        )
    return replace(
        table,
        topic=_NOT_IN_NAMES.sub(_underscores, table.topic),
        key=tuple(names[each] for each in table.key),
        columns=tuple(replace(each, name=names[each.name]) for each in table.columns),
    )


def _underscores(found: re.Match[str]) -> str:
    """Returns what stands for a character: Java counts one beyond 16 bits as two, and a digit follows an underscore."""
    character = found[0]
    return f"_{character}" if character.isascii() and character.isdigit() else "_" * (2 if character > "\uffff" else 1)


def _alike(names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for name, adjusted in names.items():
        if adjusted in seen:
            yield seen[adjusted], name
        seen[adjusted] = name


def _bare(schema: Mapping[str, Any], known: set[str], space: str = "") -> Any:
    """Returns the type of a Connect schema without NULL; a record that is known is only named."""
    kind, name = schema["type"], schema.get("name", "")
    made: dict[str, Any] = {}
    if kind == "struct":
        namespace, _, simple = name.rpartition(".")
        if name in known:
            return simple if namespace == space else name
        known.add(name)
        fields = [_field(each, known, namespace) for each in schema["fields"]]
        made = {"type": "record", "name": simple, "namespace": namespace, "fields": fields}
    elif kind == "array":
        made = {"type": kind, "items": _type(schema["items"], known, space)}
    elif kind == "map":
        made = {"type": kind, "values": _type(schema["values"], known, space)}
    else:
        made = {"type": _PRIMITIVES[kind], **_digits(schema)}
    if kind == "int16":
        made["connect.type"] = kind
    made |= {to: schema[of] for of, to in _PROPERTIES.items() if of in schema}
    return made if len(made) > 1 else made["type"]


def _digits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what Avro says of a decimal. If its scale is none in Avro, readers take it for bytes."""
    if schema.get("name") != _DECIMAL:
        return {}
    parameters = schema["parameters"]
    scale, precision = int(parameters["scale"]), int(parameters.get("connect.decimal.precision", _ANY_PRECISION))
    is_avros = 0 <= scale <= precision
    return {"scale": scale, "precision": precision, **({"logicalType": "decimal"} if is_avros else {})}


def _type(schema: Mapping[str, Any], known: set[str], space: str) -> Any:
    found = _bare(schema, known, space)
    if not schema.get("optional"):
        return found
    return [found, "null"] if "default" in schema else ["null", found]


def _field(schema: Mapping[str, Any], known: set[str], space: str) -> dict[str, Any]:
    made = {"name": schema["field"], "type": _type(schema, known, space)}
    return {**made, "default": schema.get("default")} if schema.get("optional") else made
