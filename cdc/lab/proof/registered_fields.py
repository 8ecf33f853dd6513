"""Reads values whose schemas are in a registry, as a foreign reader does.

It asks the registry and not the schemas topic.
"""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Final

from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import ReadFields

_HEAD: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 30.0


def fields_by_registry(url: str) -> ReadFields:
    """Returns a function that reads values whose schemas are in this registry; it asks for each schema once."""

    @cache
    def reader(schema_id: int) -> ReadFields:
        with urllib.request.urlopen(f"{url}/schemas/ids/{schema_id}", timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
        return _reader_of(found.get("schemaType", "AVRO"), found["schema"])

    def fields(value: bytes) -> Mapping[str, bytes] | None:
        if value.startswith(b"{"):
            return None
        magic, schema_id = _HEAD.unpack_from(value)
        if magic != 0:
            raise FormError(f"the value begins with {value[:5]!r}, not with a schema's id")
        return reader(schema_id)(value[_HEAD.size :])

    return fields


def _reader_of(kind: str, schema: str) -> ReadFields:
    # Each format's library is imported only by who has values in it
    match kind:
        case "AVRO":
            from cdc.lab.proof import avro_fields

            return avro_fields.reader_of(schema)
        case "JSON":
            from cdc.lab.proof import json_schema_fields

            return json_schema_fields.reader_of(schema)
        case "PROTOBUF":
            from cdc.lab.proof import protobuf_fields

            return protobuf_fields.reader_of(schema)
    raise FormError(f"the schema is of a kind that nobody here reads: {kind}")
