"""Avro, as bridge and readers use it."""

from __future__ import annotations

from typing import Final

from cdc.contract.formats.avro.reader import AvroReader
from cdc.contract.formats.avro.schema import avro_schema, is_same_schema, misread
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.registered import RegisteredFormat

AVRO: Final = RegisteredFormat("AVRO", avro_schema, is_same_schema, misread, AvroWriter, AvroReader)
