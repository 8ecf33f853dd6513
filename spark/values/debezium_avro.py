"""Reads Debezium's change events in Avro, in the workers' Python, as Kafka Connect's converter for JSON shows them.

Nothing here is the bridge's: values are read by Avro's specification and the schema that is on record.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from struct import unpack
from typing import Any, Final, NamedTuple, TypeAlias

from cdc.contract.floats import double_text, single_text

_HEAD_BYTES: Final = 5
"""A zero byte and the id of the schema."""


class AvroEvent(NamedTuple):
    """What a change event says.

    Attributes:
        operation: what happened to the row.
        after: the JSON of each column of the row after the change; None if there is none.
    """

    operation: str
    after: Sequence[str] | None


class _EventBytes:
    """Bytes, and how far they are read."""

    __slots__ = ("_place", "_value")

    def __init__(self, value: bytes, place: int) -> None:
        self._value = value
        self._place = place

    def taken(self, count: int) -> bytes:
        """Returns so many bytes.

        Raises:
            ValueError: there are not so many.
        """
        end = self._place + count
        if count < 0 or end > len(self._value):
            raise ValueError("the event ends too early")
        found = self._value[self._place : end]
        self._place = end
        return found

    def number(self, bits: int = 64) -> int:
        """Returns an int or a long.

        Raises:
            ValueError: it has more bits, or more bytes than it needs.
        """
        found = shift = 0
        while True:
            (byte,) = self.taken(1)
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if found >> bits or (shift and not byte):
            raise ValueError(f"not a number of {bits} bits")
        return found >> 1 ^ -(found & 1)

    def counted(self) -> bytes:
        """Returns bytes after their length."""
        return self.taken(self.number())

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes are read."""
        return self._place == len(self._value)


_Json: TypeAlias = Callable[[_EventBytes], str]
"""Reads a value and returns its JSON."""


class AvroEventReader:
    """Reads the events that were written with one schema.

    Args:
        schema: its text.

    Raises:
        ValueError: it is not the schema of an event; so do ``KeyError``, ``TypeError`` and ``StopIteration`` say.
    """

    def __init__(self, schema: str) -> None:
        records: dict[str, _Json] = {}
        given = json.loads(schema)
        before, after, *others = given["fields"]
        (row,) = (each for each in before["type"] if each != "null")
        if (before["name"], after["name"]) != ("before", "after") or type(row) is not dict:
            raise ValueError("not the schema of a change event")
        space = row.get("namespace", given["namespace"])
        self._columns = [_reader(each["type"], records, space) for each in row["fields"]]
        self._others = [(each["name"], _reader(each["type"], records, given["namespace"])) for each in others]

    def read(self, value: bytes) -> AvroEvent:
        """Returns what an event says.

        Raises:
            ValueError: it is cut or damaged.
        """
        cursor = _EventBytes(value, _HEAD_BYTES)
        self._row(cursor)
        after = self._row(cursor)
        others = {name: read(cursor) for name, read in self._others}
        if not cursor.is_at_end:
            raise ValueError("the event goes on after its last field")
        return AvroEvent(json.loads(others["op"]), after)

    def _row(self, cursor: _EventBytes) -> Sequence[str] | None:
        branch = cursor.number()
        if branch not in (0, 1):
            raise ValueError("no such branch")
        return [read(cursor) for read in self._columns] if branch else None


def is_event_schema(text: str) -> bool:
    """Whether a schema on record is that of events; those of rows have a property with the table."""
    try:
        schema = json.loads(text)
    except ValueError:  # of somebody else, which whoever reads rows refuses
        return False
    return isinstance(schema, dict) and "pg" not in schema and str(schema.get("connect.name", "")).endswith(".Envelope")


def _reader(schema: Any, records: dict[str, _Json], space: str) -> _Json:
    """Returns what reads values of a type; ``records`` are those that were named before."""
    if isinstance(schema, list):
        return _union([_reader(each, records, space) for each in schema])
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or records[schema if "." in schema else f"{space}.{schema}"]
    match schema["type"]:
        case "record":
            space = schema.get("namespace", space)
            fields = {each["name"]: _reader(each["type"], records, space) for each in schema["fields"]}
            records[f"{space}.{schema['name']}"] = read = _record(fields)
            return read
        case "array":
            return _array(_reader(schema["items"], records, space))
        case "map":
            return _map(_reader(schema["values"], records, space))
        case "int" if schema.get("connect.type") == "int16":
            return _small_integer
        case kind:
            return _PRIMITIVES[kind]


def _boolean(cursor: _EventBytes) -> str:
    return {b"\0": "false", b"\1": "true"}[cursor.taken(1)]


def _small_integer(cursor: _EventBytes) -> str:
    return str(cursor.number(16))


def _float(digits: str) -> str:
    return digits if digits.lstrip("-")[:1].isdigit() else f'"{digits}"'


def _string(cursor: _EventBytes) -> str:
    return json.dumps(cursor.counted().decode(), ensure_ascii=False)


_PRIMITIVES: Final[Mapping[str, _Json]] = {
    "null": lambda _: "null",
    "boolean": _boolean,
    "int": lambda cursor: str(cursor.number(32)),
    "long": lambda cursor: str(cursor.number()),
    "float": lambda cursor: _float(single_text(cursor.taken(4))),
    "double": lambda cursor: _float(double_text(unpack("<d", cursor.taken(8))[0])),
    "bytes": lambda cursor: f'"{b64encode(cursor.counted()).decode()}"',
    "string": _string,
}


def _union(branches: Sequence[_Json]) -> _Json:
    def read(cursor: _EventBytes) -> str:
        branch = cursor.number()
        if not 0 <= branch < len(branches):
            raise ValueError("no such branch")
        return branches[branch](cursor)

    return read


def _record(fields: Mapping[str, _Json]) -> _Json:
    return lambda cursor: "{" + ",".join(f"{json.dumps(name)}:{read(cursor)}" for name, read in fields.items()) + "}"


def _items(read: _Json, cursor: _EventBytes) -> str:
    found: list[str] = []
    while count := cursor.number():
        if count < 0:
            raise ValueError("a block that says its size, which nobody writes")
        found += [read(cursor) for _ in range(count)]
    return ",".join(found)


def _array(read: _Json) -> _Json:
    return lambda cursor: f"[{_items(read, cursor)}]"


def _map(read: _Json) -> _Json:
    return lambda cursor: "{" + _items(lambda at: f"{_string(at)}:{read(at)}", cursor) + "}"
