"""Decodes topic values into typed rows, as Arrow batches in Spark's Python workers.

Spark's ``from_json`` is not an option: it would print numbers differently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from cdc.base.errors import DecodeError
from cdc.contract.record import SchemaColumn
from cdc.spark.snapshot.columns import ColumnForm, form_of, plain_text
from cdc.spark.values.objects import split_object

BEYOND: Final = "_beyond"
"""The column for values that their own columns' types cannot hold: their text by column name. Null in most rows."""

_BEYOND_TYPE: Final = pa.map_(pa.string(), pa.string())
_JSON_NULL: Final = "json_null="
_SCHEMA: Final = "schema="


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Turns batches of ``value`` (binary) and ``header`` (string) into rows.

    Attributes:
        columns: the rows' columns, with their types.
        definitions: the column names of every definition, by fingerprint; headers name columns by number.
    """

    columns: Sequence[SchemaColumn]
    definitions: Mapping[str, Sequence[str]]

    @property
    def beyond(self) -> str:
        """The name of the ``_beyond`` column, with underscores added until no column of the table has it."""
        name, taken = BEYOND, {column.name for column in self.columns}
        while name in taken:
            name += "_"
        return name

    def spark_schema(self) -> StructType:
        """Returns the rows' schema; each field's metadata names the SQL type."""
        fields = []
        for column in self.columns:
            form = form_of(column.sql_type)
            metadata = {"sql_type": column.sql_type, **({"note": form.note} if form.note else {})}
            fields.append(
                StructField(column.name, from_arrow_type(form.arrow, prefer_timestamp_ntz=True), True, metadata)
            )
        note = {"note": "text of the values that a column's type cannot hold, by column; that column is null then"}
        return StructType([*fields, StructField(self.beyond, from_arrow_type(_BEYOND_TYPE), True, note)])

    def decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decodes batches of records; passed to ``mapInArrow``.

        Raises:
            DecodeError: a value is not a JSON object.
        """
        for batch in batches:
            values, headers = (batch.column(name).to_pylist() for name in ("value", "header"))
            members = (split_object(_text_of(value)) for value in values)
            yield self.batch(zip(members, map(self._null_documents, headers), strict=True))

    def batch(self, rows: Iterable[tuple[Mapping[str, str], Collection[str]]]) -> pa.RecordBatch:
        """Returns rows with types.

        Args:
            rows: the members of each value, from ``split_object``, and the columns whose ``null`` is a JSON document.
        """
        forms = [(column.name, form_of(column.sql_type)) for column in self.columns]
        names = [*(name for name, _ in forms), self.beyond]
        found: list[list[Any]] = [[] for _ in names]
        for members, documents in rows:
            _add(found, forms, members, documents)
        types = [*(form.arrow for _, form in forms), _BEYOND_TYPE]
        arrays = [pa.array(each, type=arrow) for each, arrow in zip(found, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _null_documents(self, header: str) -> frozenset[str]:
        """Returns the columns whose ``null`` is the JSON document ``null``, not SQL NULL."""
        if _JSON_NULL not in header:
            return frozenset()
        fields = header.split(";")
        numbers = next(each for each in fields if each.startswith(_JSON_NULL)).removeprefix(_JSON_NULL)
        fingerprint = next(each for each in fields if each.startswith(_SCHEMA)).removeprefix(_SCHEMA)
        columns = self.definitions.get(fingerprint)
        if columns is None:
            raise DecodeError(f"a record refers to definition {fingerprint}, which the schemas topic does not have")
        return frozenset(columns[int(number)] for number in numbers.split(","))


def _add(
    found: list[list[Any]],
    forms: Sequence[tuple[str, ColumnForm]],
    members: Mapping[str, str],
    documents: Collection[str],
) -> None:
    beyond: list[tuple[str, str]] = []
    for (name, form), cells in zip(forms, found, strict=False):
        raw = members.get(name)
        if raw is None or (raw.strip() == "null" and name not in documents):
            cells.append(None)
            continue
        cells.append(_read(form.read, raw, name, beyond))
    found[-1].append(beyond or None)


def _read(read: Callable[[str], Any], raw: str, name: str, beyond: list[tuple[str, str]]) -> Any:
    try:
        return read(raw)
    except (ArithmeticError, ValueError, DecodeError):
        beyond.append((name, plain_text(raw)))
        return None


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a value is not UTF-8: {value[:60]!r}") from error
