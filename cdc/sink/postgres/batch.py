"""Rows of one replica table on their way: one record per key, rendered, and the statements that take them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from psycopg import sql

from cdc.contract.formats.format import ReadColumn
from cdc.contract.formats.json_format import JSON
from cdc.contract.header import is_of_no_row, schema_of
from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.sink.postgres.equal_keys import equal, printed_alike, sift
from cdc.sink.postgres.errors import RecordRejected
from cdc.sink.postgres.fresh import FreshTables
from cdc.sink.postgres.naming import ReplicaName
from cdc.sink.postgres.rekey import former_definitions, former_keys
from cdc.sink.postgres.rows import RowForm
from cdc.sink.postgres.tables import Equality, ReplicaColumn


@dataclass(frozen=True, slots=True)
class RenderedBatch:
    """Records of one topic, at most one per key, with their COPY text.

    Attributes:
        topic: whose state they are.
        records: tombstones first, then upserts.
        tombstones: how many of them are tombstones.
        deleted: COPY text of the tombstones' keys.
        upserted: COPY text of the upserts' rows, but for those of …
        new: … whose keys the table did not have, as far as the session knows.
    """

    topic: str
    records: Sequence[StoredRecord]
    tombstones: int
    deleted: Sequence[bytes]
    upserted: Sequence[bytes]
    new: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.records)


class TableStatements:
    """How one replica table takes rows: staged by COPY, then deleted by key and upserted; new ones by COPY alone.

    The staging tables live as long as the session and empty themselves at each commit.

    Args:
        number: tells this table's staging tables from the others' of the session.
        name: of the replica table.
        schemas: every definition of its topic, the newest last.
        columns: all its mirrored columns.

    Attributes:
        prepare: make the staging tables.
        empty: for the next batch of the same transaction.
        delete: the rows of staged keys.
        undeleted: finds one of them that is there all the same.
        sift: delete staged rows that newer ones outlive; None where a key has one spelling.
        take_rows: upsert the staged rows; the last statement counts them, unless …
        is_uncounted: … rows that are there already need no update.
        take_new: copy rows straight into the replica table; None where equal keys have several spellings, among which
            ``sift`` has to choose.
        target: the replica table.
        key: its key's columns.
        same_key: condition that ``t`` and ``s`` have equal keys.
        staged_rows: the staging table of the rows.
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
        self._former_keys, self._former_definitions = former_keys(schemas), former_definitions(schemas)
        target = sql.Identifier(*name)
        rows, keys = sql.Identifier("pg_temp", f"cdc rows {number}"), sql.Identifier("pg_temp", f"cdc keys {number}")
        self.target, self.key, self.staged_rows = target, key, rows
        names, key_names = _listed(each.name for each in written), _listed(key)
        position = _free_names(("lsn", "seq"), by_name) if has_spellings else ()
        self.prepare = [_stage(rows, target, names, position), _stage(keys, target, key_names)]
        self.empty = [sql.SQL("TRUNCATE {}, {}").format(rows, keys)]
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
            self.empty.insert(0, remember.format(memory, _listed(position), key_names, rows))
            self.drop = sql.SQL("{}, {}").format(self.drop, memory)
            self.sift = sift(rows, memory, equalities, position)

    def render(self, topic: str, records: Sequence[StoredRecord], fresh: FreshTables | None = None) -> RenderedBatch:
        """The last record of each key, as COPY text.

        With ``fresh``, rows of a table that is there, and whose keys are new, are ``new``; without, none are.

        Raises:
            RecordRejected: a record has no form that the table takes.
        """
        last = _last_of_each_key(records)
        if self._former_definitions:
            last = {key: record for key, record in last.items() if not self._is_former(key, record.header)}
        tombstones = [each for each in last.values() if each.value is None and not is_of_no_row(each.header)]
        upserts = [record for record in last.values() if record.value is not None]
        new, others = ((), upserts) if fresh is None else fresh.split(topic, upserts)
        return RenderedBatch(
            topic,
            [*tombstones, *upserts],
            len(tombstones),
            [*self._key_form.blocks(tombstones, of_key=True)],
            [*self._row_form.blocks(others)],
            [*self._row_form.blocks(new)],
        )

    def _is_former(self, key: bytes, header: bytes) -> bool:
        """Whether a record was written under a key that the table had once; such records count no more."""
        if schema_of(header) in self._former_definitions:
            return True
        return bool(self._former_keys) and JSON.members(key) in self._former_keys  # no key: told of when rendered


def _last_of_each_key(records: Sequence[StoredRecord]) -> dict[bytes, StoredRecord]:
    """By key, which has one partition: what lies elsewhere does not come here (``replay.home``).

    Raises:
        RecordRejected: a record has no key.
    """
    last = {record.key: record for record in records if record.key is not None}
    if (
        len(last) < len(records)
        and (nameless := next((each for each in records if each.key is None), None)) is not None
    ):
        raise RecordRejected(nameless, "has no key")
    return last


def _stage(
    stage: sql.Identifier, target: sql.Identifier, names: sql.Composable, position: Sequence[str] = ()
) -> sql.Composed:
    """A temporary table with the target's own column types, so that COPY already refuses what the target would."""
    typed = zip(("NULL::pg_lsn AS {}, ", "NULL::int8 AS {}, "), position, strict=False)
    first = sql.Composed([sql.SQL(text).format(sql.Identifier(name)) for text, name in typed])
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {}{} FROM {} WITH NO DATA").format(
        stage, first, names, target
    )


def _delete_unlike(
    target: sql.Identifier, rows: sql.Identifier, equalities: Mapping[str, Equality], fixed: Sequence[str]
) -> sql.Composed:
    """Delete rows that get another value in a column that no UPDATE may set: the upsert then inserts them."""
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
    """The unique index that stands for the key: by its columns, unless others have the same ones."""
    constraint = next(iter(equalities.values())).constraint
    if constraint is not None:
        return sql.SQL("ON CONSTRAINT {}").format(sql.Identifier(constraint))
    return sql.SQL("({})").format(_listed(equalities))


def _equality(column: ReplicaColumn) -> Equality:
    assert column.equality is not None  # a table whose key has no unique index is refused
    return column.equality


def _free_names(wanted: Iterable[str], taken: Collection[str]) -> tuple[str, ...]:
    """Names that no column of the table has."""
    return tuple(next(each for n in count() if (each := f"cdc {name}{n or ''}") not in taken) for name in wanted)


def _listed(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join([sql.Identifier(name) for name in names])


def _formed(column: ReplicaColumn) -> ReadColumn:
    return ReadColumn(column.name, column.sql_type, column.delimiter)
