"""Record → texts of its row, on an executor. Values stay as PostgreSQL printed them: no number is rendered anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.base.errors import DecodeError
from cdc.contract.header import parse_header
from cdc.spark.values.columns import Kind, row_texts


class RecordRefused(Exception):
    """A record that has no row: names topic, partition, offset and key."""


@dataclass(frozen=True, slots=True)
class LakeRecordForm:
    """How records of one topic are read.

    Attributes:
        columns: of the lake, in order.
        definitions: by fingerprint the columns of the records that refer to it, in order, with their kinds.
    """

    topic: str
    columns: tuple[str, ...]
    definitions: Mapping[str, Mapping[str, Kind]]

    def rows(self, batch: Any) -> Iterator[tuple[str, int, int, list[str | None] | None]]:
        """Key, partition, offset and texts (None for a tombstone) of each record.

        Args:
            batch: pyarrow RecordBatch with ``key``, ``value``, ``partition``, ``offset``, ``header``.

        Raises:
            RecordRefused: a value is not of the topic contract.
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
        names = list(kinds)
        texts = row_texts(value, kinds, [names[place] for place in parsed.json_null])
        if any(text is not None and "\0" in text for text in texts.values()):
            raise DecodeError("a NUL character, which no PostgreSQL text can hold")
        return [texts.get(name) for name in self.columns]
