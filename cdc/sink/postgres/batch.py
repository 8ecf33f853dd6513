"""A batch of rows for one replica table: the last record of each key as COPY text, and the statements that apply it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from psycopg import sql

from cdc.contract.formats.format import ReadColumn
from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.sink.postgres.equal_keys import equal, printed_alike, sift
from cdc.sink.postgres.fresh import FreshTables
from cdc.sink.postgres.rows import RowForm
from cdc.sink.postgres.tables import Equality, ReplicaColumn
from cdc.sink.rejections import RecordRejected, render_all_but
from cdc.sink.replica import ReplicaName
from cdc.sink.topic_rows import TopicRecords


@dataclass(frozen=True, slots=True)
class RenderedBatch:
    """Records of one topic, at most one per key, with their COPY text.

    Attributes:
        topic: whose state they are.
        records: tombstones first, then upserts.
        tombstones: how many of them are tombstones.
        deleted: COPY text of the tombstones' keys.
        upserted: COPY text of the upserts' rows, except those in ``new``.
        new: COPY text of rows whose keys the table did not have, as far as the session knows.
        refused: records that cannot be written as rows of the table; they stand among the tombstones.
    """

    topic: str
    records: Sequence[StoredRecord]
    tombstones: int
    deleted: Sequence[bytes]
    upserted: Sequence[bytes]
    new: Sequence[bytes]
    refused: Sequence[RecordRejected] = ()

    def __len__(self) -> int:
        return len(self.records)


class TableStatements:
    """The statements that write rows to one replica table.

    COPY stages the rows; a DELETE by key and an upsert then apply them. New rows can be copied straight into the table.
    The staging tables live as long as the session, and each commit empties them.

    Args:
        number: keeps this table's staging tables apart from the others of the session.
        name: the replica table's name.
        schemas: every definition of its topic, the newest last.
        columns: all its mirrored columns.

    Attributes:
        prepare: create the staging tables.
        truncate: empty the staging tables for the next batch of the same transaction.
        clear: the same, but leave the dead rows there.
        drop: drops the staging tables.
        delete: deletes the rows of the staged keys.
        undeleted: finds a row that is still there after ``delete``.
        sift: deletes staged rows that a newer row replaces; None if equal keys are always printed alike.
        take_rows: upsert the staged rows; the last statement's row count is the number of rows taken.
        is_uncounted: rows that exist already need no update, so that row count says nothing.
        take_new: copies rows straight into the replica table; None if equal keys can be printed differently, because
            ``sift`` must then choose among them.
        target: the replica table.
        key: the key's columns.
        same_key: the condition that ``t`` and ``s`` have equal keys.
        staged_rows: the staging table for rows.
    """

    def __init__(
        self, number: int, name: ReplicaName, schemas: Sequence[TableSchema], columns: Sequence[ReplicaColumn]
    ) -> None:
        key = schemas[-1].key
        written = [column for column in columns if not column.is_generated]
        generated = [column.name for column in columns if column.is_generated]
        by_name = {column.name: column for column in columns}
        definitions = {schema.fingerprint: [column.name for column in schema.columns] for schema in schemas}
        equalities = {each: _equality(by_name[each]) for each in key}
        self.same_key = equal(equalities)
        has_spellings = not all(each.is_identity for each in equalities.values())
        self._row_form = RowForm([*map(_formed, written)], generated, definitions, is_positioned=has_spellings)
        self._key_form = RowForm([_formed(by_name[each]) for each in key])
        self._records = TopicRecords(schemas)
        target = sql.Identifier(*name)
        rows, keys = sql.Identifier("pg_temp", f"cdc rows {number}"), sql.Identifier("pg_temp", f"cdc keys {number}")
        self.target, self.key, self.staged_rows = target, key, rows
        names, key_names = _listed(each.name for each in written), _listed(key)
        position = _free_names(("lsn", "seq"), by_name) if has_spellings else ()
        self.prepare = [_stage(rows, target, names, position), _stage(keys, target, key_names)]
        self.truncate = [sql.SQL("TRUNCATE {}, {}").format(rows, keys)]
        self.clear = [sql.SQL("DELETE FROM {}").format(each) for each in (rows, keys)]
        self.drop = sql.SQL("DROP TABLE {}, {}").format(rows, keys)
        self.stage_keys = sql.SQL("COPY {} FROM STDIN").format(keys)
        self.stage_rows = sql.SQL("COPY {} FROM STDIN").format(rows)
        self.take_new = None if has_spellings else sql.SQL("COPY {} ({}) FROM STDIN").format(target, names)
        gone = sql.SQL("{} AND {}").format(self.same_key, printed_alike(key)) if has_spellings else self.same_key
        self.delete = sql.SQL("DELETE FROM {} AS t USING {} AS s WHERE {}").format(target, keys, gone)
        self.undeleted = sql.SQL("SELECT FROM {} AS t JOIN {} AS s ON {} LIMIT 1").format(target, keys, gone)
        self.sift: sql.Composed | None = None
        fixed = [each.name for each in written if each.is_always_identity]
        updated = [each.name for each in written if each.name not in fixed and (has_spellings or each.name not in key)]
        self.is_uncounted = not updated
        self.take_rows = [
            *([_delete_unlike(target, rows, equalities, fixed)] if fixed else []),
            sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} ON CONFLICT {} DO {}").format(
                target, names, names, rows, _arbiter(equalities), _update(updated)
            ),
        ]
        if has_spellings:
            memory = sql.Identifier("pg_temp", f"cdc written {number}")
            self.prepare.append(_stage(memory, target, key_names, position))
            self.prepare.append(sql.SQL("CREATE INDEX ON {} ({})").format(memory, key_names))
            remember = sql.SQL("INSERT INTO {} SELECT {}, {} FROM {}")
            for emptying in (self.truncate, self.clear):
                emptying.insert(0, remember.format(memory, _listed(position), key_names, rows))
            self.drop = sql.SQL("{}, {}").format(self.drop, memory)
            self.sift = sift(rows, memory, equalities, position)

    def key_in_json(self, record: StoredRecord) -> bytes:
        """Returns the key of a record in JSON."""
        return self._records.key(record)

    def render_most(
        self, topic: str, records: Sequence[StoredRecord], fresh: FreshTables, budget: int
    ) -> RenderedBatch:
        """Renders records as ``render`` does, with tombstones in place of those that cannot be written as rows.

        Args:
            topic: whose records they are.
            records: in the order of each partition.
            fresh: as for ``render``.
            budget: how many records may be refused.

        Raises:
            RecordRejected: more are, or one that cannot be put aside: a tombstone, or a record without a key.
        """
        rendered, refused = render_all_but(lambda left: self.render(topic, left, fresh), records, budget)
        return replace(rendered, refused=refused)

    def render(self, topic: str, records: Sequence[StoredRecord], fresh: FreshTables | None = None) -> RenderedBatch:
        """Renders the last record of each key as COPY text.

        Args:
            topic: whose records they are.
            records: in the order of each partition.
            fresh: the tables that were empty; decides which rows are ``new``. Without it, none are.

        Raises:
            RecordRejected: a record cannot be written as a row of the table.
        """
        tombstones, upserts = self._records.newest(records)
        return self._rendered(topic, tombstones, upserts, fresh)

    def render_again(self, topic: str, records: Iterable[StoredRecord]) -> RenderedBatch:
        """Renders records of a batch once more. They are as ``render`` left them, so nothing is chosen or opened."""
        chosen = list(records)
        tombstones = [each for each in chosen if each.value is None]
        return self._rendered(topic, tombstones, [each for each in chosen if each.value is not None], None)

    def _rendered(
        self,
        topic: str,
        tombstones: Sequence[StoredRecord],
        upserts: Sequence[StoredRecord],
        fresh: FreshTables | None,
    ) -> RenderedBatch:
        new, others = ((), upserts) if fresh is None else fresh.split(topic, upserts)
        return RenderedBatch(
            topic,
            [*tombstones, *upserts],
            len(tombstones),
            [*self._key_form.blocks(tombstones, of_key=True)],
            [*self._row_form.blocks(others)],
            [*self._row_form.blocks(new)],
        )


def _stage(
    stage: sql.Identifier, target: sql.Identifier, names: sql.Composable, position: Sequence[str] = ()
) -> sql.Composed:
    """Creates a temporary table with the target's column types, so that COPY rejects what the target would reject."""
    typed = zip(("NULL::pg_lsn AS {}, ", "NULL::int8 AS {}, "), position, strict=False)
    first = sql.Composed([sql.SQL(text).format(sql.Identifier(name)) for text, name in typed])
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {}{} FROM {} WITH NO DATA").format(
        stage, first, names, target
    )


def _delete_unlike(
    target: sql.Identifier, rows: sql.Identifier, equalities: Mapping[str, Equality], fixed: Sequence[str]
) -> sql.Composed:
    """Deletes rows whose new value in a ``GENERATED ALWAYS`` identity column differs, so that the upsert inserts them.

    PostgreSQL allows no UPDATE to set such a column.
    """
    unlike = [sql.SQL("t.{0} IS DISTINCT FROM s.{0}").format(sql.Identifier(each)) for each in fixed]
    return sql.SQL("DELETE FROM {} AS t USING {} AS s WHERE {} AND ({})").format(
        target, rows, equal(equalities), sql.SQL(" OR ").join(unlike)
    )


def _update(names: Sequence[str]) -> sql.Composable:
    if not names:
        return sql.SQL("NOTHING")
    assignments = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(each)) for each in names]
    return sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(assignments))


def _arbiter(equalities: Mapping[str, Equality]) -> sql.Composable:
    """Names the key's unique index for ON CONFLICT: by its columns or, if another index has these, by constraint."""
    constraint = next(iter(equalities.values())).constraint
    if constraint is not None:
        return sql.SQL("ON CONSTRAINT {}").format(sql.Identifier(constraint))
    return sql.SQL("({})").format(_listed(equalities))


def _equality(column: ReplicaColumn) -> Equality:
    assert column.equality is not None  # a table whose key has no unique index is refused
    return column.equality


def _free_names(wanted: Iterable[str], taken: Collection[str]) -> tuple[str, ...]:
    """Returns names that no column of the table has."""
    return tuple(next(each for n in count() if (each := f"cdc {name}{n or ''}") not in taken) for name in wanted)


def _listed(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join([sql.Identifier(name) for name in names])


def _formed(column: ReplicaColumn) -> ReadColumn:
    return ReadColumn(column.name, column.sql_type, column.delimiter)
