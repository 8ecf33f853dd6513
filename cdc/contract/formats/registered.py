"""The interface of formats whose schemas are in a registry. Their values begin with the schema's id.

Confluent's wire format: a zero byte, the id in four bytes, big-endian, and the row.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from cdc.contract.change import Column
from cdc.contract.formats.format import RowWriter
from cdc.contract.formats.names import mangled
from cdc.contract.record import DebeziumModes, FormatName, TableSchema

Beyond: TypeAlias = Literal["refuse", "text"]
"""What becomes of values that their type in the format cannot hold: an error, or the server's text."""

SchemaKind: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
"""A language of schemas, as registries spell it."""


HEAD_BYTES: Final = 5
"""The length of what precedes the row."""
_MOST_IDS: Final = 1 << 32


def head(schema_id: int) -> bytes:
    """Returns what precedes the row in a value with this schema.

    Raises:
        ValueError: such an id does not exist.
    """
    if not 0 <= schema_id < _MOST_IDS:
        raise ValueError(f"not a schema id: {schema_id}")
    return b"\0" + schema_id.to_bytes(4, "big")


def check_head(value: bytes) -> None:
    """Check that a value begins with the id of a schema.

    Raises:
        ValueError: it does not.
    """
    if len(value) < HEAD_BYTES:
        raise ValueError(f"not a value in Confluent's wire format: it has only {len(value)} bytes")
    if value[0]:
        raise ValueError(f"not a value in Confluent's wire format: it begins with {value[0]:#04x} instead of 0")


class ValueReader(Protocol):
    """Reads the values of one schema."""

    def json(self, value: bytes) -> bytes:
        """Returns the row as the object that the JSON format writes, byte for byte.

        Raises:
            ValueError: the bytes are not such a value; the message says what is wrong.
        """


def _record_name(table: TableSchema, bridge: str) -> str:
    return f"{mangled(bridge)}.{mangled(table.namespace)}.{mangled(table.name)}"


def _alone(_: str, now: str) -> str:
    return now


@dataclass(frozen=True, slots=True)
class RegisteredFormat:
    """A format, as bridge and readers use it. All of it is pure.

    Attributes:
        kind: the language of its schemas.
        schema: makes the schema of a table's values, from the definition, the bridge's name, and what becomes of values
            beyond their types. The same arguments always make the same text.
        is_same: whether two texts are the same schema. Registries may write one anew, in another layout.
        misread: returns the columns whose values a reader with one schema (the first argument) would take for something
            else when they are written with the other, without any error, although the registry may take it; raises
            ``ValueError`` for a schema of another kind.
        writer: makes a writer for rows with these columns, from the schema's text and id.
        reader: makes a reader from the schema's text; raises ``ValueError`` for a schema that cdc did not write.
        succeeding: returns a schema (the second argument) with what it has to keep of the one with which the topic was
            last written. The result after itself is the same text.
        record: returns the name of the record in the schema, from the definition and the bridge's name. No two tables
            have the same.
    """

    kind: SchemaKind
    schema: Callable[[TableSchema, str, Beyond], str]
    is_same: Callable[[str, str], bool]
    misread: Callable[[str, str], Sequence[str]]
    writer: Callable[[Sequence[Column], str, int], RowWriter]
    reader: Callable[[str], ValueReader]
    succeeding: Callable[[str, str], str] = _alone
    record: Callable[[TableSchema, str], str] = _record_name


def registered(name: FormatName, envelope: DebeziumModes | None = None) -> RegisteredFormat:
    """Returns a format by its name.

    Only who uses a format pays for its import, which makes tables of numbers.

    Args:
        name: of the format.
        envelope: what surrounds each row; None if nothing does.

    Raises:
        ValueError: the format has no schemas in a registry, or no envelopes.
    """
    match name:
        case "avro" if envelope is not None:
            from cdc.contract.formats.debezium.avro_envelope import envelope_format

            return envelope_format(envelope)
        case "json-schema" | "protobuf" if envelope is not None:
            raise ValueError(f"format {name} has no envelopes")
        case "avro":
            from cdc.contract.formats.avro.reader import AVRO

            return AVRO
        case "json-schema":
            from cdc.contract.formats.json_schema.values import JSON_SCHEMA

            return JSON_SCHEMA
        case "protobuf":
            from cdc.contract.formats.protobuf.reader import PROTOBUF

            return PROTOBUF
        case _:
            raise ValueError(f"format {name} has no schemas in a registry")
