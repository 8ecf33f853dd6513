"""A row of a lake's table → PostgreSQL's texts of it → the hashes and texts that a comparison needs; on an executor.

It is written from docs/lake.md, in the opposite direction to the mirror's reader of records, and shares no code with
it: typed values become the texts that PostgreSQL prints, and texts in ``_beyond`` stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from cdc.base.errors import DecodeError
from cdc.contract.jobspec.deployment import JobColumn, JobTable
from cdc.spark.replicas.texts import StoredRows, Texts, text_of
from cdc.spark.values.columns import ArrayOf, Scalar, column_text, quoted_element

HASHED_DDL: Final = "key_hash bigint, value_hash bigint"
WHOLE_DDL: Final = "key_hash bigint, key string, source_columns string"

_HASHED: Final = pa.schema([("key_hash", pa.int64()), ("value_hash", pa.int64())])
_WHOLE: Final = pa.schema([("key_hash", pa.int64()), ("key", pa.string()), ("source_columns", pa.string())])
_SCALARS: Final = {"number": Scalar.NUMBER, "bool": Scalar.BOOL, "text": Scalar.TEXT, "json": Scalar.JSON}
_BESIDE: Final = "{} (in _beyond, beside the value {})"

Batches = Iterator[pa.RecordBatch]


class LakeRows:
    """Reads rows of a lake's table.

    Args:
        table: the table.
    """

    def __init__(self, table: JobTable) -> None:
        self.stored = StoredRows(table)
        self._names = [each.name for each in table.columns]
        self._arrays = {
            place: _array_text(each) for place, each in enumerate(table.columns) if each.is_array
        }  # a scalar is read as other drivers' values are

    def texts(self, values: Sequence[Any], beyond: Mapping[str, str]) -> Texts:
        """Returns PostgreSQL's text of each column.

        Args:
            values: the typed values, in the order of the table's columns; moments without a zone, in UTC.
            beyond: the texts that the types cannot hold. A column with a text and a value has been tampered with: its
                text is then one that no source prints.
        """
        row = []
        for place, (name, value) in enumerate(zip(self._names, values, strict=True)):
            found = value
            if (text := beyond.get(name)) is not None:
                found = text if value is None else _BESIDE.format(text, value)
            row.append(self._arrays[place](found) if found is not None and place in self._arrays else found)
        return self.stored.texts(row)


def hashes_of(table: JobTable) -> Callable[[Batches], Batches]:
    """Returns what makes ``HASHED_DDL`` of batches of ``key_hash``, the columns in their order, and ``_beyond``."""

    def convert(batches: Batches) -> Batches:
        rows = LakeRows(table)
        for batch in batches:
            hashes = [rows.stored.value_hash(texts) for texts in _texts(rows, batch.columns[1:])]
            yield pa.record_batch([batch.column(0), pa.array(hashes, pa.int64())], schema=_HASHED)

    return convert


def whole_rows(table: JobTable) -> Callable[[Batches], Batches]:
    """Returns what makes ``WHOLE_DDL`` of batches of ``key_hash``, ``key``, the columns in their order, ``_beyond``."""

    def convert(batches: Batches) -> Batches:
        rows = LakeRows(table)
        for batch in batches:
            texts = [json.dumps(each) for each in _texts(rows, batch.columns[2:])]
            yield pa.record_batch([*batch.columns[:2], pa.array(texts, pa.string())], schema=_WHOLE)

    return convert


def _texts(rows: LakeRows, columns: Sequence[pa.Array]) -> Iterator[Texts]:
    *values, beyond = (_in_utc(each).to_pylist() for each in columns)
    for texts, *row in zip(beyond, *values, strict=True):
        yield rows.texts(row, dict(texts or ()))


def _in_utc(column: pa.Array) -> pa.Array:
    """Takes the zone away: Arrow counts in UTC whichever it names."""
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def _array_text(column: JobColumn) -> Callable[[Any], str]:
    """Returns what makes PostgreSQL's text of an array: of a list, or of JSON where the type of a list cannot hold it.

    A text that is not JSON is PostgreSQL's own, of an array with another lower bound.
    """
    form = ArrayOf(_SCALARS[column.kind], column.delimiter)
    element = text_of(column.model_copy(update={"is_array": False, "sql_type": column.sql_type.removesuffix("[]")}))

    def text(value: Any) -> str:
        if isinstance(value, str):
            try:
                return column_text(value, form) or value
            except DecodeError:
                return value
        parts = ["NULL" if each is None else quoted_element(element(each), column.delimiter) for each in value]
        return "{" + column.delimiter.join(parts) + "}"

    return text
