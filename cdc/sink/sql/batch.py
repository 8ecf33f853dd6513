"""A batch of rows for one replica table: the last record of each key as the driver's values, and what applies them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cdc.contract.formats.format import ReadColumn
from cdc.contract.kinds import kind_of
from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaName
from cdc.sink.sql.dialect import SqlDialect
from cdc.sink.sql.tables import MirroredColumn, table_of
from cdc.sink.topic_rows import RowTexts, TopicRecords

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Records of one topic, at most one per key, as the driver's values.

    Attributes:
        topic: whose state they are.
        records: tombstones first, then upserts.
        deleted: the key of each tombstone.
        upserted: the row of each upsert.
        refused: records that are put aside; they stand among the tombstones.
    """

    topic: str
    records: Sequence[StoredRecord]
    deleted: Sequence[Row]
    upserted: Sequence[Row]
    refused: Sequence[RecordRejected] = ()

    def __len__(self) -> int:
        return len(self.records)

    def only(self, places: Iterable[int]) -> RowBatch:
        """Returns the batch of some of its records, by their places in ascending order."""
        chosen, first = list(places), len(self.deleted)
        return RowBatch(
            self.topic,
            [self.records[each] for each in chosen],
            [self.deleted[each] for each in chosen if each < first],
            [self.upserted[each - first] for each in chosen if each >= first],
        )


class RowsTable:
    """One replica table, and the statements that write its rows.

    Args:
        dialect: of the replica.
        name: the replica table's name.
        schemas: every definition of its topic, the newest last.
        columns: all its mirrored columns.

    Attributes:
        name: the replica table's name.
        table: the replica table.
        key: the key's columns.
    """

    def __init__(
        self,
        dialect: SqlDialect,
        name: ReplicaName,
        schemas: Sequence[TableSchema],
        columns: Sequence[MirroredColumn],
    ) -> None:
        self._dialect = dialect
        written = [each for each in columns if not each.is_generated]
        by_name = {each.name: each for each in columns}
        self.name, self.key = name, schemas[-1].key
        self.key_columns = [by_name[each] for each in self.key]
        self._columns = written
        definitions = {schema.fingerprint: [column.name for column in schema.columns] for schema in schemas}
        generated = [each.name for each in columns if each.is_generated]
        self._records = TopicRecords(schemas)
        self._rows = RowTexts([*map(_read, written)], generated, definitions)
        self._keys = RowTexts([*map(_read, self.key_columns)])
        places = {each.name: place for place, each in enumerate(written)}
        self._key_places = [places[each] for each in self.key]
        self.table = table_of(name, written, self.key)
        self._is_replaced = dialect.skips_equals(self.table)
        self._upsert, self._delete = dialect.upsert(self.table, self.key), dialect.delete(self.table, self.key)

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> RowBatch:
        """Returns the last record of each key as the driver's values.

        Raises:
            RecordRejected: a record cannot be written as a row of the table.
        """
        tombstones, upserts = self._records.newest(records)
        keys = self._keys.rows(tombstones, of_key=True)
        rows = self._rows.rows(upserts, of_key=False)
        return RowBatch(
            topic,
            [*tombstones, *upserts],
            _values(tombstones, keys, self.key_columns),
            _values(upserts, rows, self._columns),
        )

    def put_aside(self, batch: RowBatch, reasons: Mapping[int, str]) -> RowBatch:
        """Returns a batch with tombstones in place of some upserts.

        Args:
            batch: the batch.
            reasons: why each of them is put aside, by its place in the batch.
        """
        first = len(batch.deleted)
        refused = [RecordRejected(batch.records[place], reason) for place, reason in reasons.items()]
        taken = [place for place in range(first, len(batch)) if place not in reasons]
        return RowBatch(
            batch.topic,
            [batch.records[place] for place in (*range(first), *reasons, *taken)],
            [*batch.deleted, *self.keys_of([batch.upserted[place - first] for place in reasons])],
            [batch.upserted[place - first] for place in taken],
            [*batch.refused, *refused],
        )

    def key_in_json(self, record: StoredRecord) -> bytes:
        """Returns the key of a record in JSON."""
        return self._records.key(record)

    def apply(self, connection: sa.Connection, batch: RowBatch) -> None:
        """Deletes and upserts rows in the open transaction."""
        if batch.deleted:
            self._dialect.load(connection, self._delete, batch.deleted)
        if batch.upserted and self._is_replaced:
            self._dialect.load(connection, self._delete, self.keys_of(batch.upserted))
        if batch.upserted:
            self._dialect.load(connection, self._upsert, batch.upserted)

    def keys_of(self, rows: Sequence[Row]) -> list[Row]:
        """Returns the keys of rows."""
        return [tuple(row[place] for place in self._key_places) for row in rows]

    def holds_rows(self, connection: sa.Connection) -> bool:
        """Returns whether the table holds any row."""
        return connection.scalar(sa.select(sa.literal(1)).select_from(self.table).limit(1)) is not None


def _values(
    records: Sequence[StoredRecord], rows: Sequence[Sequence[str]], columns: Sequence[MirroredColumn]
) -> list[Row]:
    """Returns rows of the driver's values, made column by column; if one fails, row by row to find it.

    Raises:
        RecordRejected: a column cannot hold a value.
    """
    if not rows:
        return []
    try:
        by_column = [each.form.values(texts) for each, texts in zip(columns, zip(*rows, strict=True), strict=True)]
        return list(zip(*by_column, strict=True))
    except ValueError:
        for record, row in zip(records, rows, strict=True):
            for column, text in zip(columns, row, strict=True):
                try:
                    column.form.values([text])
                except ValueError as error:
                    raise RecordRejected(record, f"column {column.name!r}: {error}") from error
        raise


def _read(column: MirroredColumn) -> ReadColumn:
    return ReadColumn(column.name, column.sql_type, kind_of(column.sql_type).delimiter)
