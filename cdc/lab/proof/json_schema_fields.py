"""Takes a value with a JSON Schema apart, and validates it by another implementation, with the schema of the registry.

It shares no code with ``contract/formats``, as ``avro_fields`` does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec

from cdc.contract.json_members import members
from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import ReadFields


def reader_of(schema: str) -> ReadFields:
    """Returns a function that reads what follows the schema's id in values with this schema."""
    described = json.loads(schema)
    validator = jsonschema_rs.Draft7Validator(described)
    columns = [name for name, column in described["properties"].items() if not column["pg"].get("dropped")]

    def fields(body: bytes) -> Mapping[str, bytes]:
        row = members(body)
        for error in validator.iter_errors({name: _parsed(text) for name, text in row.items()}):
            raise FormError(f"the value is not valid by its schema: {error.message}")
        if missing := [name for name in columns if name not in row]:
            raise FormError(f"the value has no member {missing[0]!r}")
        return {name: bytes(text) for name, text in row.items()}

    return fields


def _parsed(text: msgspec.Raw) -> Any:
    try:
        return json.loads(bytes(text))
    except RecursionError:  # only a document is so deep, and its schema allows everything
        return None
