"""Turns records into rows with types, on an executor: those of a snapshot, with ``_beyond`` for what no type holds.

Also decides what a table with versions may become when its columns are no longer those of its topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from cdc.contract.record import SchemaColumn
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.position import KeyAside
from cdc.spark.mirror.rows import LakeRecordForm
from cdc.spark.snapshot.rows import RowDecoder

KEY: Final = "cdc_key"
DELETED: Final = "cdc_deleted"
_DIGITS: Final[Mapping[str, int]] = {"smallint": 5, "int": 10, "bigint": 19}
"""How many decimal digits the values of an integer type have at most."""

REFUSED: Final = "partition int, offset bigint, digest string, key string, reason string"
"""The columns of ``TypedForm.refused``: the fields of ``KeyAside``."""

_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")


@dataclass(frozen=True, slots=True)
class TypedForm:
    """How to read the records of one topic into typed columns.

    Attributes:
        records: tells what is not a record of the topic.
        decoder: reads the values.
    """

    records: LakeRecordForm
    decoder: RowDecoder

    def schema(self) -> StructType:
        """Returns the columns of the table: the record's key, those of the source, and ``_beyond``."""
        return StructType([StructField(KEY, StringType()), *self.decoder.spark_schema().fields])

    def batch_schema(self) -> StructType:
        """Returns the columns of ``convert``."""
        return StructType([StructField(DELETED, BooleanType()), *self.schema().fields])

    def convert(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Reads batches of records; passed to ``mapInArrow``. A tombstone becomes a row of its key alone.

        Raises:
            RecordRefused: a record is not of the topic contract.
        """
        import pyarrow

        for batch in batches:
            records = list(self.records.records(batch))
            keys, rows = [each.key for each in records], [each for each in records if each.texts is not None]
            numbers = count()
            places = [None if each.texts is None else next(numbers) for each in records]
            decoded = self.decoder.batch((each.members, each.documents) for each in rows)
            columns = decoded.take(pyarrow.array(places, type=pyarrow.int64())).columns
            deleted = pyarrow.array([place is None for place in places], type=pyarrow.bool_())
            arrays = [deleted, pyarrow.array(keys, type=pyarrow.string()), *columns]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=[DELETED, KEY, *decoded.schema.names])

    def refused(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Finds the records that ``convert`` refuses; passed to ``mapInArrow`` with ``REFUSED``."""
        import pyarrow

        types = [pyarrow.int32(), pyarrow.int64(), pyarrow.string(), pyarrow.string(), pyarrow.string()]
        schema = pyarrow.schema(zip(KeyAside._fields, types, strict=True))
        for batch in batches:
            found = (KeyAside.of(each.key, *each.place, each.reason) for each in self.records.refused(batch))
            yield pyarrow.RecordBatch.from_pylist([each._asdict() for each in found], schema=schema)


def typed_form(definitions: Definitions, topic: str) -> TypedForm:
    """Returns how to read a topic with the definitions that are known now."""
    columns = tuple(SchemaColumn(name, sql_type) for name, sql_type in definitions.columns(topic).items())
    names = {each.fingerprint: tuple(column.name for column in each.columns) for each in definitions.of(topic)}
    return TypedForm(definitions.form(topic), RowDecoder(columns, names))


def holds_all(wide: str, narrow: str) -> bool:
    """Tells whether a cast from ``narrow`` to ``wide`` gives what the records would have given as ``wide``.

    A ``float`` does not tell whether the record said 0.1 or 0.10000000149011612, nor a ``boolean`` how it is spelled.
    """
    if narrow in _DIGITS:
        if wide in _DIGITS:
            return _DIGITS[narrow] <= _DIGITS[wide]
        to = _DECIMAL.fullmatch(wide)
        return wide == "string" or (to is not None and int(to[1]) - int(to[2]) >= _DIGITS[narrow])
    given, to = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
    if given is None:
        return narrow == wide
    precision, scale = int(given[1]), int(given[2])
    return wide == "string" or (to is not None and int(to[2]) >= scale and int(to[1]) - int(to[2]) >= precision - scale)


def names_that_clash(columns: list[str]) -> tuple[str, str] | None:
    """Returns two columns that many readers take for one, because their names differ in case only."""
    seen: dict[str, str] = {}
    for name in columns:
        if (former := seen.setdefault(name.lower(), name)) != name:
            return former, name
    return None


def needs_mapping(name: str) -> bool:
    """Tells whether Delta writes a column of this name only with column mapping."""
    return bool(set(name) & set(" ,;{}()\n\t="))


def quoted(name: str) -> str:
    """Quotes a name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"
