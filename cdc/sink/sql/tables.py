"""Replica tables: created from definitions, widened when these get new columns, refused when they do not match.

A replica table has every column that any definition of its topic has, and the newest definition with a column decides
its type. Column types are never altered. A column keeps its type as long as that holds every value of the source's type
unchanged. If it does not, the table is refused, with the command that repairs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from cdc.contract.record import TableSchema
from cdc.sink.definitions import former_keys, wanted_columns
from cdc.sink.rejections import TableRefused
from cdc.sink.replica import ReplicaName
from cdc.sink.sql.dialect import SqlDialect, SqlType, StorageForm, StoredTable

_THEN: Final = "then restart the sink, which reads the topic again"


class MirroredColumn(NamedTuple):
    """A column of a replica table.

    Attributes:
        name: as the source spells it.
        sql_type: the source's type as the newest definition spells it; the topic's values have its form.
        form: how the replica holds its values.
        is_generated: the replica computes it, so the sink never writes it.
    """

    name: str
    sql_type: str
    form: StorageForm
    is_generated: bool


class TablePlan(NamedTuple):
    """What a replica table is to become.

    Attributes:
        columns: its mirrored columns.
        added: the columns that are added to a table that exists.
        is_new: the table does not exist.
        is_rekeyed: it is made anew, because it has another key now.
        statements: change the table, one after the other. Where each commits by itself, a crash may leave some
            undone: a plan that is made again then has the others.
    """

    columns: Sequence[MirroredColumn]
    added: Sequence[str]
    is_new: bool
    is_rekeyed: bool
    statements: Sequence[sa.schema.ExecutableDDLElement | str]

    def carry_out(self, connection: sa.Connection) -> None:
        """Changes the table."""
        for each in self.statements:
            if isinstance(each, str):
                connection.exec_driver_sql(each)
            else:
                connection.execute(each)


def plan_table(
    connection: sa.Connection, dialect: SqlDialect, name: ReplicaName, schemas: Sequence[TableSchema]
) -> TablePlan:
    """Returns how the replica table is to be created or widened so that it fits all definitions of its topic.

    Args:
        connection: to the replica; nothing is changed there.
        dialect: of the replica.
        name: the replica table's name.
        schemas: in the order in which they were used, at least one.

    Raises:
        TableRefused: the existing table cannot hold the topic's state.
    """
    wanted, key = wanted_columns(schemas), schemas[-1].key
    fold = str.lower if dialect.names.folds_case else str
    _refuse_alike(dialect, schemas[-1], wanted, fold)
    stored = dialect.stored(connection, name)
    is_rekeyed = stored is not None and _has_former_key(stored, schemas, fold)
    if stored is not None and not is_rekeyed:
        return _fitted(connection, dialect, name, schemas, stored)
    forms = {each: dialect.form(sql_type, of_key=_share(each, key)) for each, sql_type in wanted.items()}
    columns = [_mirrored(each, wanted, forms) for each in wanted]
    statements: list[sa.schema.ExecutableDDLElement | str] = []
    if is_rekeyed:
        statements.append(sa.schema.DropTable(table_of(name, ())))
    if dialect.names.schema is None:
        statements.append(sa.schema.CreateSchema(name.schema, if_not_exists=True))
    statements.append(sa.schema.CreateTable(table_of(name, columns, key, **dialect.table_options)))
    return TablePlan(columns, [], not is_rekeyed, is_rekeyed, statements)


def table_of(name: ReplicaName, columns: Sequence[MirroredColumn], key: Sequence[str] = (), **options: Any) -> sa.Table:
    """Describes a table for SQLAlchemy."""
    described = [sa.Column(each.name, SqlType(each.form.sql), nullable=each.name not in key) for each in columns]
    constraints = [sa.PrimaryKeyConstraint(*key)] if key else []
    return sa.Table(name.table, sa.MetaData(), *described, *constraints, schema=name.schema or None, **options)


def _fitted(
    connection: sa.Connection,
    dialect: SqlDialect,
    name: ReplicaName,
    schemas: Sequence[TableSchema],
    stored: StoredTable,
) -> TablePlan:
    """Returns how missing columns are added to a table that exists. Refuses it if it does not match."""
    wanted, key = wanted_columns(schemas), schemas[-1].key
    fold = str.lower if dialect.names.folds_case else str
    quote = connection.dialect.identifier_preparer.quote_identifier
    table = f"{quote(name.schema)}.{quote(name.table)}"
    if stored.flaw:
        mended = stored.remedy or f"DROP TABLE {table};"
        raise TableRefused(f"replica table {name} {stored.flaw}", remedy=f"{mended}  {_THEN}")
    if frozenset(map(fold, key)) not in [frozenset(map(fold, each)) for each in stored.keys]:
        listed = ", ".join(map(quote, key))
        raise TableRefused(
            f"replica table {name} has no primary key or unique index on exactly the key columns ({listed}) "
            "that tells all different values apart",
            remedy=f"DROP TABLE {table};  {_THEN}",
        )
    there = {fold(each.name): each for each in stored.columns}
    forms: dict[str, StorageForm | None] = {}
    for column, sql_type in wanted.items():
        found = there.get(fold(column))
        forms[column] = dialect.form(sql_type, of_key=_share(column, key), stored=found and found.sql)
        if forms[column] is None and found is not None:
            raise TableRefused(
                f"column {column!r} of replica table {name} has type {found.sql or 'none'}, and the source's is "
                f"{sql_type}, which it cannot hold unchanged",
                # Not every database drops a column that stands before one of the key
                remedy=f"DROP TABLE {table};  {_THEN}"
                if list(there).index(fold(column)) <= max(list(there).index(fold(each)) for each in key)
                else f"ALTER TABLE {table} DROP COLUMN {quote(column)};  {_THEN}",
            )
    generated = {name for name, each in there.items() if each.is_generated}
    columns = [_mirrored(column, wanted, forms, is_generated=fold(column) in generated) for column in wanted]
    added = [each for each in columns if fold(each.name) not in there]
    spelled = [
        sa.schema.CreateColumn(each).compile(dialect=connection.dialect) for each in table_of(name, added).columns
    ]
    statements = [f"ALTER TABLE {table} ADD COLUMN {each}" for each in spelled]
    return TablePlan(columns, [each.name for each in added], False, False, statements)


def _share(column: str, key: Sequence[str]) -> int:
    """Returns how many columns the key has, if this is one of them; else 0."""
    return len(key) if column in key else 0


def _mirrored(
    column: str, wanted: Mapping[str, str], forms: Mapping[str, StorageForm | None], *, is_generated: bool = False
) -> MirroredColumn:
    form = forms[column]
    assert form is not None  # each dialect has a form for every type in a new column
    return MirroredColumn(column, wanted[column], form, is_generated)


def _has_former_key(stored: StoredTable, schemas: Sequence[TableSchema], fold: Callable[[str], str]) -> bool:
    """Returns whether the table's primary key is a former one of the topic, so that its rows are of no use."""
    primary_key = frozenset(map(fold, stored.primary_key))
    return primary_key in [frozenset(map(fold, each)) for each in former_keys(schemas)]


def _refuse_alike(
    dialect: SqlDialect, schema: TableSchema, wanted: Mapping[str, str], fold: Callable[[str], str]
) -> None:
    """Refuses columns that are one column to the replica."""
    names: dict[str, str] = {}
    for column in wanted:
        if (other := names.setdefault(fold(column), column)) != column:
            raise TableRefused(
                f"{schema.qualified_name} has columns {other!r} and {column!r}, which are the same to {dialect.called}",
                remedy="rename one of them in the source, or leave the table out with source.exclude; "
                "then restart the sink",
            )
