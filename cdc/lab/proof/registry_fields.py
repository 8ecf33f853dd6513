"""Takes values with schemas apart. Like a foreign reader, it asks the registry and not the schemas topic."""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Final

import jsonschema_rs
import msgspec

from cdc.lab.proof.avro_fields import fields_by_avro
from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import ReadFields

_HEAD: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 30.0
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _fields_by_json_schema(schema: str) -> ReadFields:
    """Returns a function that takes apart what follows the schema's id, and validates it."""
    described = json.loads(schema)
    validator = jsonschema_rs.Draft7Validator(described)
    columns = [name for name, column in described["properties"].items() if not column["pg"].get("dropped")]

    def fields(body: bytes) -> Mapping[str, bytes]:
        for error in validator.iter_errors(json.loads(body)):
            raise FormError(f"the value is not valid by its schema: {error.message}")
        row = _RAW.decode(body)
        if missing := [name for name in columns if name not in row]:
            raise FormError(f"the value has no member {missing[0]!r}")
        return {name: bytes(text) for name, text in row.items()}

    return fields


_READERS: Final = {"AVRO": fields_by_avro, "JSON": _fields_by_json_schema}


def fields_by_registry(url: str) -> ReadFields:
    """Returns a function that reads values whose schemas are in this registry; it asks for each schema once."""

    @cache
    def reader_of(schema_id: int) -> ReadFields:
        with urllib.request.urlopen(f"{url}/schemas/ids/{schema_id}", timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
        return _READERS[found.get("schemaType", "AVRO")](found["schema"])

    def fields(value: bytes) -> Mapping[str, bytes]:
        magic, schema_id = _HEAD.unpack_from(value)
        if magic != 0:
            raise FormError(f"the value begins with {value[:5]!r}, not with a schema's id")
        return reader_of(schema_id)(value[_HEAD.size :])

    return fields
