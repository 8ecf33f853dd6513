"""Protobuf, as bridge and readers use it."""

from __future__ import annotations

from typing import Final

from cdc.contract.formats.protobuf.reader import ProtobufReader
from cdc.contract.formats.protobuf.schema import is_same_schema, misread, protobuf_schema, succeeding
from cdc.contract.formats.protobuf.writer import ProtobufWriter
from cdc.contract.formats.registered import RegisteredFormat

PROTOBUF: Final = RegisteredFormat(
    "PROTOBUF", protobuf_schema, is_same_schema, misread, ProtobufWriter, ProtobufReader, succeeding
)
