"""Turns records into the texts of their rows, on an executor. Values stay exactly as PostgreSQL printed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.base.errors import DecodeError
from cdc.contract.header import parse_header
from cdc.spark.values.columns import Kind, row_texts


class RecordRefused(Exception):
    """Raised for a record that does not hold a row; names topic, partition, offset and key."""


@dataclass(frozen=True, slots=True)
class LakeRecordForm:
    """How to read the records of one topic.

    Attributes:
        columns: the lake's columns, in order.
        definitions: the columns and kinds in each definition, in order, by fingerprint.
    """

    topic: str
    columns: tuple[str, ...]
    definitions: Mapping[str, Mapping[str, Kind]]

    def rows(self, batch: Any) -> Iterator[tuple[str, int, int, list[str | None] | None]]:
        """Yields key, partition, offset and texts (None for a tombstone) of each record.

        Args:
            batch: a pyarrow RecordBatch with ``key``, ``value``, ``partition``, ``offset``, ``header``.

        Raises:
            RecordRefused: a record is not of the topic contract.
        """
        fields = (batch.column(name).to_pylist() for name in ("key", "value", "partition", "offset", "header"))
        for key, value, partition, offset, header in zip(*fields, strict=True):
            try:
                yield key.decode(), partition, offset, None if value is None else self._texts(value, header)
            except (DecodeError, UnicodeDecodeError, AttributeError) as error:
                cause = error.message if isinstance(error, DecodeError) else str(error)
                raise RecordRefused(
                    f"topic {self.topic}, partition {partition}, offset {offset}, key {(key or b'')[:200]!r}: {cause}"
                ) from error

    def _texts(self, value: bytes, header: str | None) -> list[str | None]:
        if header is None:
            raise DecodeError("the record has no header cdc: another program wrote it")
        parsed = parse_header(header.encode())
        kinds = self.definitions.get(parsed.schema)
        if kinds is None:
            raise DecodeError(f"the schemas topic does not have the definition {parsed.schema}")
        texts = row_texts(value, kinds, parsed.null_documents(list(kinds)))
        if any(text is not None and "\0" in text for text in texts.values()):
            raise DecodeError("the value has a NUL character, which PostgreSQL text cannot hold")
        return [texts.get(name) for name in self.columns]
