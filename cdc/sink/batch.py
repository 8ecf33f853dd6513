"""Rows of one replica table on their way: one record per key, rendered, and the statements that take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from psycopg import sql

from cdc.encode.header import header_position
from cdc.errors import DecodeError
from cdc.lsn import ZERO
from cdc.ports import StoredRecord
from cdc.record import Position, TableSchema
from cdc.sink.errors import RecordRejected
from cdc.sink.naming import ReplicaName
from cdc.sink.rekey import former_keys
from cdc.sink.rows import FormedColumn, RowForm
from cdc.sink.tables import ReplicaColumn

_decode_key = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class RenderedBatch:
    """Records of one topic, at most one per key, with their COPY text.

    Attributes:
        topic: whose state they are.
        records: tombstones first, then upserts.
        tombstones: how many of them are tombstones.
        deleted: COPY text of the tombstones' keys.
        upserted: COPY text of the upserts' rows.
    """

    topic: str
    records: Sequence[StoredRecord]
    tombstones: int
    deleted: Sequence[bytes]
    upserted: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.records)


class TableStatements:
    """How one replica table takes rows: staged by COPY, then deleted by key and upserted.

    The staging tables live as long as the session and empty themselves at each commit.

    Args:
        number: tells this table's staging tables from the others' of the session.
        name: of the replica table.
        schemas: every definition of its topic, the newest last.
        columns: all its mirrored columns.
    """

    def __init__(
        self, number: int, name: ReplicaName, schemas: Sequence[TableSchema], columns: Sequence[ReplicaColumn]
    ) -> None:
        key = schemas[-1].key
        written = [column for column in columns if not column.is_generated]
        by_name = {column.name: column for column in columns}
        definitions = {schema.fingerprint: [column.name for column in schema.columns] for schema in schemas}
        generated = [each.name for each in columns if each.is_generated]
        self._row_form = RowForm([*map(_formed, written)], generated, definitions)
        self._key_form = RowForm([_formed(by_name[each]) for each in key])
        self._former_keys = former_keys(schemas)
        target = sql.Identifier(*name)
        rows, keys = sql.Identifier("pg_temp", f"cdc rows {number}"), sql.Identifier("pg_temp", f"cdc keys {number}")
        names = _listed(each.name for each in written)
        key_names = _listed(key)
        self.prepare = [
            _stage(rows, target, names),
            _stage(keys, target, key_names),
        ]
        self.empty = sql.SQL("TRUNCATE {}, {}").format(rows, keys)
        self.drop = sql.SQL("DROP TABLE {}, {}").format(rows, keys)
        self.stage_keys = sql.SQL("COPY {} FROM STDIN").format(keys)
        self.stage_rows = sql.SQL("COPY {} FROM STDIN").format(rows)
        self.delete = sql.SQL("DELETE FROM {} AS t USING {} AS k WHERE {}").format(
            target,
            keys,
            sql.SQL(" AND ").join(sql.SQL("t.{0} = k.{0}").format(sql.Identifier(each)) for each in key),
        )
        assignments = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(each.name)) for each in written if each.name not in key
        ]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(assignments)) if assignments else sql.SQL("NOTHING")
        self.upsert = sql.SQL(
            "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} ON CONFLICT ({}) DO {}"
        ).format(target, names, names, rows, key_names, action)

    def render(self, topic: str, records: Sequence[StoredRecord]) -> RenderedBatch:
        """The last record of each key, as COPY text.

        A key has records in two partitions when somebody wrote one where it does not belong, and its tombstone followed
        there; then positions decide, not the order in which partitions are read.

        Raises:
            RecordRejected: a record has no form that the table takes.
        """
        last: dict[bytes, StoredRecord] = {}
        for record in records:
            if record.key is None:
                raise RecordRejected(record, "has no key")
            before = last.get(record.key)
            if before is None or before.partition == record.partition or _position(before) <= _position(record):
                last[record.key] = record
        if self._former_keys:
            last = {key: record for key, record in last.items() if not self._is_former(key)}
        tombstones = [record for record in last.values() if record.value is None]
        upserts = [record for record in last.values() if record.value is not None]
        return RenderedBatch(
            topic,
            [*tombstones, *upserts],
            len(tombstones),
            [*self._key_form.blocks(tombstones, of_key=True)],
            [*self._row_form.blocks(upserts)],
        )

    def _is_former(self, key: bytes) -> bool:
        """Whether a record was written under a key that the table had once; such records count no more."""
        try:
            return frozenset(_decode_key(key)) in self._former_keys
        except msgspec.MsgspecError:
            return False  # told of when it is rendered


def _stage(stage: sql.Identifier, target: sql.Identifier, names: sql.Composable) -> sql.Composed:
    """A temporary table with the target's own column types, so that COPY already refuses what the target would."""
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA").format(
        stage, names, target
    )


def _listed(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join([sql.Identifier(name) for name in names])


def _formed(column: ReplicaColumn) -> FormedColumn:
    return FormedColumn(column.name, column.sql_type, column.delimiter)


def _position(record: StoredRecord) -> Position:
    """Where the record says it stands; what is not the bridge's stands before everything."""
    try:
        return header_position(record.header)
    except DecodeError:
        return Position(ZERO, 0)
