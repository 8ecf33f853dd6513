"""JSON with a JSON Schema, as bridge and readers use it."""

from __future__ import annotations

from typing import Final

from cdc.contract.formats.json_schema.schema import is_same_schema, json_schema, misread, succeeding
from cdc.contract.formats.json_schema.values import DescribedReader, DescribedWriter
from cdc.contract.formats.registered import RegisteredFormat

JSON_SCHEMA: Final = RegisteredFormat(
    "JSON", json_schema, is_same_schema, misread, DescribedWriter, DescribedReader, succeeding
)
