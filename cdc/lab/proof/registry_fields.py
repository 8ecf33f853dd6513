"""Takes values with schemas apart. Like a foreign reader, it asks the registry and not the schemas topic."""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Final

from cdc.lab.proof.avro_fields import fields_by_avro
from cdc.lab.proof.json_schema_fields import fields_by_json_schema
from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import ReadFields

_HEAD: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 30.0
_READERS: Final = {"AVRO": fields_by_avro, "JSON": fields_by_json_schema}


def fields_by_registry(url: str) -> ReadFields:
    """Returns a function that reads values whose schemas are in this registry; it asks for each schema once."""

    @cache
    def reader_of(schema_id: int) -> ReadFields:
        with urllib.request.urlopen(f"{url}/schemas/ids/{schema_id}", timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
        return _READERS[found.get("schemaType", "AVRO")](found["schema"])

    def fields(value: bytes) -> Mapping[str, bytes] | None:
        if value.startswith(b"{"):
            return None
        magic, schema_id = _HEAD.unpack_from(value)
        if magic != 0:
            raise FormError(f"the value begins with {value[:5]!r}, not with a schema's id")
        return reader_of(schema_id)(value[_HEAD.size :])

    return fields
