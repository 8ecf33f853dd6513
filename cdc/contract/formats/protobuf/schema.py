"""Makes the Protobuf schema of a table, and restores the table from such a schema.

A comment above the message and above each field holds what Protobuf has no place for: the table, its key and the
definition's fingerprint; a column's own name, its type as ``__schemas`` spells it, and its number in PostgreSQL.

A field belongs to a column, however the column is called, so its number is the column's number in PostgreSQL. The
stream does not always tell that number (``contract.schema.numbered``), and a schema that goes on from a former one
(``succeeding``) then gives the column of this name the field that it had. A number that is free of doubt does not
change it either. So a number, once given, never belongs to another column: what was dropped is reserved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from cdc.contract.formats.names import mangled, original
from cdc.contract.formats.protobuf.types import TIMESTAMP, ProtobufType, protobuf_type
from cdc.contract.formats.registered import Beyond
from cdc.contract.record import SchemaColumn, TableSchema

_MOST_COLUMNS: Final = 8_999
"""Far above PostgreSQL's highest number, 1600. A column's texts have the number above it by ``_TEXTS_ABOVE``."""
_TEXTS_ABOVE: Final = 10_000
_FIRST_OTHER: Final = 20_000
"""The first number of columns whose own numbers are not known, or taken: even ones, and those of their texts are odd.
Protobuf itself has 19000 to 19999."""
_MOST_NUMBERS: Final = (1 << 29) - 1


class ProtobufColumn(NamedTuple):
    """A column as a schema describes it.

    Attributes:
        name: its name in the table.
        sql_type: its type, as ``__schemas`` spells it.
        type: its Protobuf type.
        is_key: whether it belongs to the key, so that it is never NULL.
        number: the number of its field.
        text_number: the number of the field for values that are beyond its type; 0 if there is no such field.
    """

    name: str
    sql_type: str
    type: ProtobufType
    is_key: bool
    number: int
    text_number: int


class Reserved(NamedTuple):
    """The numbers and names of fields that are gone; both in order."""

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


class ProtobufTable(NamedTuple):
    """What a schema says: the bridge's name, and the table.

    Attributes:
        bridge: the name of the bridge.
        table: the definition; its topic, relation id, type oids and labels are unknown.
        columns: the columns, in the order of the table.
        reserved: the fields that are gone.
        has_texts: whether values that are beyond their types become texts.
    """

    bridge: str
    table: TableSchema
    columns: tuple[ProtobufColumn, ...]
    reserved: Reserved
    has_texts: bool

    @property
    def fields(self) -> Mapping[int, str]:
        """The names of all fields by their numbers."""
        texts = _text_fields(self.table.columns)
        own = {column.number: mangled(column.name) for column in self.columns}
        return own | {column.text_number: texts[column.name] for column in self.columns if column.text_number}


def protobuf_schema(table: TableSchema, name: str, beyond: Beyond) -> str:
    """Returns the schema of a table's values, if no other precedes it; the same table always has the same text.

    Args:
        table: the definition.
        name: the bridge's name.
        beyond: what becomes of values that their type cannot hold.
    """
    return _text(_described(table, name, _numbers(table.columns, {}, frozenset()), Reserved(), beyond == "text"))


def succeeding(former: str, schema: str) -> str:
    """Returns a schema as it goes on from the topic's former one: columns keep their fields, and no number comes again.

    Args:
        former: the schema with which the topic was last written.
        schema: as ``protobuf_schema`` makes it.
    """
    now, before = read_schema(schema), read_schema(former)
    taken = {**before.fields, **dict.fromkeys(before.reserved.numbers, "")}
    numbers = _numbers(now.table.columns, _kept(now.table.columns, before), frozenset(taken))
    found = _described(now.table, now.bridge, numbers, Reserved(), now.has_texts)
    fields = found.fields
    names = {*before.reserved.names, *before.fields.values()} - {*fields.values()}
    reserved = Reserved(tuple(sorted(taken.keys() - fields.keys())), tuple(sorted(names)))
    return _text(found._replace(reserved=reserved))


def read_schema(schema: str) -> ProtobufTable:
    """Read a schema that ``protobuf_schema`` or ``succeeding`` made.

    Raises:
        ValueError: the schema is not in this form; the message names what is foreign.
    """
    found = _read(schema)
    if _text(found) != schema:
        raise ValueError(f"the schema does not have the form that cdc writes: {_foreign(schema, _text(found))}")
    return found


def is_same_schema(one: str, other: str) -> bool:
    """Whether two texts are the same schema, however they are laid out.

    A registry may leave out the comments. The other text then says the same as far as it says anything.
    """
    (words, comments), (others, other_comments) = _words(one), _words(other)
    return words == others and (comments == other_comments or not comments or not other_comments)


def misread(former: str, now: str) -> tuple[str, ...]:
    """Returns the columns that a reader with the former schema would not read as what they are, without any error.

    Protobuf compares no types: a field of another type is cut to the reader's bits, taken for text, or left out.

    Args:
        former: the schema with which the topic was last written.
        now: the schema to be registered.
    """
    was = {column.number: column for column in read_schema(former).columns}
    pairs = ((was[column.number], column) for column in read_schema(now).columns if column.number in was)
    return tuple(
        f"column {new.name} was {old.sql_type} and is {new.sql_type}"
        for old, new in pairs
        if (old.type.is_array, old.type.element) != (new.type.is_array, new.type.element)
    )


def _kept(columns: Sequence[SchemaColumn], before: ProtobufTable) -> Mapping[str, int]:
    """Returns the numbers of the fields that columns had before, by the columns' names."""
    pairs = list(zip(before.table.columns, before.columns, strict=True))
    by_number = {column.number: field.number for column, field in pairs if column.number}
    by_name = {column.name: (column.number, field.number) for column, field in pairs}
    kept = {column.name: by_number[column.number] for column in columns if column.number in by_number}
    for column in columns:
        own, number = by_name.get(column.name, (0, 0))
        # The name decides only if one of the numbers is not known
        if column.name not in kept and number and not (own and column.number) and number not in kept.values():
            kept[column.name] = number
    return kept


def _numbers(columns: Sequence[SchemaColumn], kept: Mapping[str, int], taken: frozenset[int]) -> Mapping[str, int]:
    """Returns the number of each column's field, by the column's name.

    Args:
        columns: the columns of the table.
        kept: numbers that columns had before.
        taken: all numbers that fields ever had.
    """
    numbers = dict(kept)
    used = {*taken, *kept.values()}
    for column in columns:
        if column.name not in numbers and 0 < column.number <= _MOST_COLUMNS and column.number not in used:
            numbers[column.name] = column.number
            used.add(column.number)
    free = iter(range(max([_FIRST_OTHER, *((number | 1) + 1 for number in used)]), _MOST_NUMBERS, 2))
    return {column.name: numbers[column.name] if column.name in numbers else next(free) for column in columns}


def _described(
    table: TableSchema, bridge: str, numbers: Mapping[str, int], reserved: Reserved, has_texts: bool
) -> ProtobufTable:
    return ProtobufTable(bridge, table, tuple(_columns(table, numbers, has_texts)), reserved, has_texts)


def _columns(table: TableSchema, numbers: Mapping[str, int], has_texts: bool) -> Iterator[ProtobufColumn]:
    for column in table.columns:
        found, number = protobuf_type(column.sql_type), numbers[column.name]
        above = _TEXTS_ABOVE if number <= _MOST_COLUMNS else 1
        text_number = number + above if has_texts and found.is_narrow else 0
        yield ProtobufColumn(column.name, column.sql_type, found, column.name in table.key, number, text_number)


def _text_fields(columns: Iterable[SchemaColumn]) -> Mapping[str, str]:
    """Returns the names of fields for texts, by columns; the columns' own fields have other names."""
    names = [column.name for column in columns]
    taken = {*names, *map(mangled, names)}
    found = {}
    for name in names:
        field = f"{mangled(name)}_text"
        while field in taken:
            field += "_"
        found[name] = field
        taken.add(field)
    return found


def _text(described: ProtobufTable) -> str:
    return "\n".join(_lines(described)) + "\n"


def _lines(described: ProtobufTable) -> Iterator[str]:
    table, columns = described.table, described.columns
    package = f"{mangled(described.bridge)}.{mangled(table.namespace)}"
    types = [column.type for column in columns]
    yield 'syntax = "proto3";'
    yield f"package {package};"
    if any(each.element == f".{TIMESTAMP}" for each in types):
        yield 'import "google/protobuf/timestamp.proto";'
    origin = {"table": [table.namespace, table.name], "key": list(table.key), "fingerprint": table.fingerprint}
    yield _comment(origin | ({"beyond": "text"} if described.has_texts else {}))
    message = mangled(table.name)
    yield f"message {message} {{"
    arrays = {each.array: each for each in types if each.is_array}
    spelled = {name: f"{name}_" if name == message else name for name in arrays}
    texts = _text_fields(table.columns)
    if _have_alike_names(described.fields.values()):
        yield "  option deprecated_legacy_json_field_conflicts = true;"
    if described.reserved.numbers:
        yield f"  reserved {', '.join(map(str, described.reserved.numbers))};"
    if described.reserved.names:
        yield "  reserved " + ", ".join(f'"{name}"' for name in described.reserved.names) + ";"
    for column, source in zip(columns, table.columns, strict=True):
        of_source: dict[str, Any] = {"name": column.name, "type": column.sql_type}
        yield "  " + _comment(of_source | ({"number": source.number} if source.number else {}))
        kind = f".{package}.{spelled[column.type.array]}" if column.type.is_array else column.type.element
        presence = "" if column.is_key else "optional "
        yield f"  {presence}{kind} {_field(mangled(column.name), column.number, column.name)};"
        if column.text_number:
            yield f"  optional string {_field(texts[column.name], column.text_number, texts[column.name])};"
    yield "}"
    for name, each in sorted(arrays.items()):
        yield f"message {spelled[name]} {{"
        yield f"  message Element {{ optional {each.element} value = 1; }}"
        yield "  repeated Element elements = 1;"
        yield "}"


def _comment(origin: Mapping[str, Any]) -> str:
    return f"// {json.dumps(origin, separators=(',', ':'))}"


def _field(field: str, number: int, name: str) -> str:
    """Returns a field's name and number. In Protobuf's JSON, the field has the column's own name."""
    if _json_name(field) == name:
        return f"{field} = {number}"
    return f'{field} = {number} [json_name = "{_escaped(name)}"]'


def _json_name(field: str) -> str:
    """Returns the name that a field has in Protobuf's JSON by default."""
    return re.sub("_+(.?)", lambda found: found[1].upper(), field)


_BRACKETS: Final = re.compile(r" *\[.*\]", re.DOTALL)
"""Protobuf takes a name in brackets for an extension's."""
_ESCAPES: Final = re.compile(r'["\\\x00-\x1f\x7f]')


def _escaped(name: str) -> str:
    allowed = f" {name}" if _BRACKETS.fullmatch(name) else name
    return _ESCAPES.sub(lambda found: f"\\{found[0]}" if found[0] in '"\\' else f"\\{ord(found[0]):03o}", allowed)


def _have_alike_names(fields: Iterable[str]) -> bool:
    """Whether two fields would have the same name by default, which proto3 refuses even if they have other names."""
    names = [_json_name(field) for field in fields]
    return len({*names}) < len(names)


_FOREIGN: Final = "the schema was not written by cdc"
_PACKAGE: Final = re.compile(r"^package (\w+)\.\w+;$", re.MULTILINE | re.ASCII)
_TABLE: Final = re.compile(r"^// (.*)$", re.MULTILINE)
_FIELD: Final = re.compile(r"^  // (.*)\n  (?:optional )?[.\w]+ \w+ = ([0-9]{1,9})[ ;]", re.MULTILINE | re.ASCII)
_NUMBERS: Final = re.compile(r"^  reserved ([0-9]{1,9}(?:, [0-9]{1,9})*);$", re.MULTILINE)
_NAMES: Final = re.compile(r'^  reserved ("\w+"(?:, "\w+")*);$', re.MULTILINE | re.ASCII)


def _read(schema: str) -> ProtobufTable:
    """Returns what the comments say, and the numbers of the fields."""
    package, origin = _PACKAGE.search(schema), _TABLE.search(schema)
    if package is None:
        raise ValueError(f"{_FOREIGN}: its package does not consist of the bridge's name and a namespace")
    said = _object(origin[1] if origin is not None else "", "the message")
    names, key = (_texts(_member(said, name, list, "the message"), name) for name in ("table", "key"))
    if len(names) != 2:
        raise ValueError(f"{_FOREIGN}: the message's table is not a namespace and a name")
    fields = _FIELD.findall(schema)
    columns = tuple(_column_of(text, place) for place, (text, _) in enumerate(fields, 1))
    if len({column.name for column in columns}) < len(columns):
        raise ValueError(f"{_FOREIGN}: two fields have the same name")
    numbers = {column.name: int(number) for column, (_, number) in zip(columns, fields, strict=True)}
    table = TableSchema(_member(said, "fingerprint", str, "the message"), names[0], names[1], "", key, columns)
    gone, left = _NUMBERS.search(schema), _NAMES.search(schema)
    reserved = Reserved(
        tuple(map(int, gone[1].split(", "))) if gone is not None else (),
        tuple(left[1].replace('"', "").split(", ")) if left is not None else (),
    )
    return _described(table, original(package[1]), numbers, reserved, said.get("beyond") == "text")


def _column_of(text: str, place: int) -> SchemaColumn:
    where = f"field {place}"
    origin = _object(text, where)
    number = _member(origin, "number", int, where) if "number" in origin else 0
    return SchemaColumn(_member(origin, "name", str, where), _member(origin, "type", str, where), number)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if type(found) is not dict:
        raise ValueError(f"{_FOREIGN}: the comment at {where} is not a JSON object")
    return found


def _member(holder: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    found = holder.get(name)
    if type(found) is not kind:
        raise ValueError(f"{_FOREIGN}: the comment at {where} has no {name} of the right kind")
    return found


def _texts(items: list[Any], name: str) -> tuple[str, ...]:
    if not all(type(item) is str for item in items):
        raise ValueError(f"{_FOREIGN}: the message's {name} does not consist of names")
    return tuple(items)


def _foreign(given: str, ours: str) -> str:
    lines, own = given.split("\n"), ours.split("\n")
    return repr(next((line for line, other in zip(lines, own, strict=False) if line != other), lines[-1])[:200])


_TOKEN: Final = re.compile(
    r"""//([^\n]*)|(/\*.*?\*/)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[.\w]+|[^\s\w])""", re.DOTALL
)


def _words(schema: str) -> tuple[list[str], list[str]]:
    """Returns the words of a schema, and the comments that cdc wrote; a registry may add its own."""
    words, comments = [], []
    for line, block, word in _TOKEN.findall(schema):
        if word:
            words.append(word)
        elif not block and line.lstrip().startswith("{"):
            comments.append(line.strip())
    return words, comments
