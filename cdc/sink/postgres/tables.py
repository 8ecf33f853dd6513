"""Replica tables: created from definitions, widened when these get new columns, refused when they do not match.

A replica table has every column that any definition of its topic has. The newest definition with a column decides its
type. A type that the replica lacks becomes text, and so does one whose values name database objects (``regclass``). A
column that the source has dropped stays; it is NULL in rows written later.

Column types are never altered. A replica column keeps its type as long as that prints every value of the source's type
unchanged. If it does not, the table is refused, with the command that repairs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import psycopg
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.types import UserDefinedType

from cdc.contract.pgtypes import quote_identifier
from cdc.contract.record import TableSchema
from cdc.sink.definitions import wanted_columns
from cdc.sink.postgres.errors import first_line, is_retryable
from cdc.sink.postgres.rekey import rekey
from cdc.sink.rejections import TableRefused
from cdc.sink.replica import ReplicaName

_WIDENINGS: Final[Mapping[str, frozenset[str]]] = {
    "smallint": frozenset({"integer", "bigint", "numeric"}),
    "integer": frozenset({"bigint", "numeric"}),
    "bigint": frozenset({"numeric"}),
}
"""The types that print each value of a type as that type does. ``double precision`` is not one for ``real``, which uses
exponents earlier: ``1e+06`` for ``1000000``."""

_REFERENCES: Final = frozenset(
    {"regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc"}
    | {"regprocedure", "regrole", "regtype"}
)
"""Types whose values name objects of the source database, which the replica may not have."""

_READ: Final = frozenset({"boolean", "boolean[]", "real[]", "double precision[]"})
"""Types that print a value in another way than the topic (``t`` for ``true``): a text column would keep the topic's."""

_VARCHAR: Final = re.compile(r"character varying\(([0-9]+)\)")
_MODIFIER: Final = re.compile(r"\([^)]*\)")

_COLUMNS: Final = sa.text("""
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', a.attidentity = 'a',
           coalesce(e.typdelim, ',')
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem
    WHERE a.attrelid = to_regclass(:table) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
""")

_ARBITER: Final = sa.text(r"""
    SELECT a.attname, n.nspname, o.oprname,
           c.opcintype <> 'interval'\:\:regtype AND (c.opcintype <> 'bpchar'\:\:regtype OR a.atttypmod >= 0)
           AND NOT EXISTS (SELECT FROM pg_collation WHERE oid = k.collated AND NOT collisdeterministic)
           AND EXISTS (SELECT FROM pg_amproc WHERE amprocfamily = c.opcfamily AND amprocnum = 4
                       AND amproclefttype = c.opcintype AND amprocrighttype = c.opcintype),
           i.named,
           (SELECT quote_ident(collname) FROM pg_collation WHERE oid = k.collated AND NOT collisdeterministic
               AND k.collated <> (SELECT typcollation FROM pg_type WHERE oid = a.atttypid))
    FROM (SELECT *, CASE WHEN count(*) OVER () > 1 THEN conname END AS named, bool_and(indimmediate) OVER () AS all_now
          FROM (SELECT i.*, u.conname
                FROM pg_index i LEFT JOIN pg_constraint u ON u.conindid = i.indexrelid AND u.contype IN ('p', 'u')
                WHERE i.indrelid = to_regclass(:table) AND i.indisunique AND i.indisvalid
                  AND i.indpred IS NULL AND i.indexprs IS NULL
                  AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C") FROM pg_attribute a
                       WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0\:i.indnkeyatts - 1]))
                      = CAST(:key AS text[])) candidate
          ORDER BY indimmediate DESC, indisprimary DESC, conname IS NULL, indexrelid LIMIT 1) i
    CROSS JOIN LATERAL unnest(i.indkey\:\:int2[], i.indclass\:\:oid[], i.indcollation\:\:oid[])
        AS k (attnum, opclass, collated)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    JOIN pg_opclass c ON c.oid = k.opclass
    JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
                  AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE i.indimmediate AND (i.all_now OR i.named IS NOT NULL)
""")
"""Selects the columns of the key's unique index, with the equality operator of each, and whether equal means identical.

ON CONFLICT with column names uses every unique index on these columns, and fails when one of them is deferrable. So if
there are several, the chosen one has to be a constraint, which ON CONFLICT can name.

An operator class has support function 4 (``equalimage``) when equal values are always the same bytes. Two types are
excluded. Before PostgreSQL 16, ``interval`` has the function although it should not; ``bpchar`` without a length
ignores trailing blanks.
https://www.postgresql.org/docs/current/btree.html#BTREE-SUPPORT-FUNCS
"""


class Equality(NamedTuple):
    """How the replica compares two values of a key column.

    Attributes:
        namespace: the operator's schema, which may not be in ``search_path`` (citext, ltree).
        operator: the operator's name.
        is_identity: equal values are always printed alike; when False, they may differ (numeric ``1.0`` and ``1``).
        constraint: the constraint that names the key's index when other indexes have the same columns; else None.
        folding: a nondeterministic collation that is not the type's own; else None.
    """

    namespace: str
    operator: str
    is_identity: bool
    constraint: str | None
    folding: str | None


@dataclass(frozen=True, slots=True)
class ReplicaColumn:
    """A column of a replica table.

    Attributes:
        name: the same in source and replica.
        sql_type: the source's type as the newest definition spells it; the topic's values have its form.
        replica_type: the replica's type as ``format_type`` prints it.
        is_generated: the replica computes the column, so the sink never writes it.
        is_always_identity: ``GENERATED ALWAYS AS IDENTITY``: INSERT can set it, UPDATE cannot.
        delimiter: ``typdelim`` of an array's elements.
        equality: for a key column; None for others.
    """

    name: str
    sql_type: str
    replica_type: str
    is_generated: bool
    is_always_identity: bool
    delimiter: str
    equality: Equality | None = None


class _FoundColumn(NamedTuple):
    """A column as the replica's catalog describes it."""

    replica_type: str
    is_generated: bool
    is_always_identity: bool
    delimiter: str


class _SqlType(UserDefinedType[str]):
    """A type that SQLAlchemy renders as given."""

    cache_ok = True

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def get_col_spec(self, **_: Any) -> str:
        return self.sql


class Established(NamedTuple):
    """What ``establish`` found or made.

    Attributes:
        columns: the mirrored columns of the replica table.
        added: the columns that were added to a table that existed.
        is_emptied: all rows were deleted, because the table has another key now.
    """

    columns: list[ReplicaColumn]
    added: list[str]
    is_emptied: bool


def establish(connection: sa.Connection, name: ReplicaName, schemas: Sequence[TableSchema]) -> Established:
    """Creates or widens the replica table so that it fits all definitions of its topic.

    Args:
        connection: to the replica; the caller commits.
        name: the replica table's name.
        schemas: in the order in which they were used, at least one.

    Raises:
        TableRefused: the existing table cannot hold the topic's state.
    """
    wanted = wanted_columns(schemas)
    key = schemas[-1].key
    known = {sql_type: _known_type(connection, sql_type) for sql_type in set(wanted.values())}
    types = {column: known[sql_type] for column, sql_type in wanted.items()}
    added: list[str] = []
    if found := _columns(connection, name):
        added = _fit(connection, name, types, found)
    else:
        _create(connection, name, types, key)
    found = _columns(connection, name)
    arbiter = _arbiter(connection, name, key)
    is_emptied = not arbiter and rekey(connection, quoted_name(name), schemas)
    if is_emptied:
        arbiter = _arbiter(connection, name, key)
    if not arbiter:
        columns = ", ".join(map(quote_identifier, key))
        raise TableRefused(
            f"replica table {name} has no primary key or unique constraint on exactly the key columns ({columns})"
            " that is not deferrable",
            remedy=f"ALTER TABLE {quoted_name(name)} ADD UNIQUE ({columns});  or drop it: the sink makes its own",
        )
    _refuse_folding(name, arbiter, {column: found[column].replica_type for column in arbiter})
    mirrored = [
        ReplicaColumn(column, wanted[column], **found[column]._asdict(), equality=arbiter.get(column))
        for column in wanted
    ]
    return Established(mirrored, added, is_emptied)


def quoted_name(name: ReplicaName) -> str:
    """Returns the name with both parts quoted. (SQLAlchemy's own quoting would double percent signs.)"""
    return ".".join(map(quote_identifier, name))


def takes_unchanged(actual: str, wanted: str) -> bool:
    """Returns whether a column of type ``actual`` prints every value of type ``wanted`` as that type does.

    Args:
        actual: as ``format_type`` prints it.
        wanted: as ``format_type`` prints it.
    """
    if actual.endswith("[]") and wanted.endswith("[]"):
        return takes_unchanged(actual[:-2], wanted[:-2])
    if actual == wanted or (actual == "text" and wanted not in _READ) or actual in _WIDENINGS.get(wanted, ()):
        return True
    if _MODIFIER.sub("", wanted) == actual:
        return True  # the same type without a limit
    limits = _VARCHAR.fullmatch(actual), _VARCHAR.fullmatch(wanted)
    return limits[0] is not None and limits[1] is not None and int(limits[0][1]) >= int(limits[1][1])


def _refuse_folding(name: ReplicaName, key: Mapping[str, Equality], types: Mapping[str, str]) -> None:
    """Refuses a key column that ignores differences. The source may distinguish such keys; topics do not say."""
    for column, equality in key.items():
        if equality.folding is not None:
            quoted = quote_identifier(column)
            raise TableRefused(
                f"key column {column!r} of replica table {name} has the nondeterministic collation {equality.folding}: "
                "source rows whose keys it calls equal, such as 'a' and 'A', would become one row",
                remedy=f"ALTER TABLE {quoted_name(name)} ALTER COLUMN {quoted} TYPE {types[column]} "
                'COLLATE pg_catalog."default";  then cdc sink --rebuild, because rows may be missing',
            )


def _create(connection: sa.Connection, name: ReplicaName, types: Mapping[str, str], key: Sequence[str]) -> None:
    if not sa.inspect(connection).has_schema(name.schema):
        connection.execute(sa.schema.CreateSchema(name.schema))
    connection.execute(sa.schema.CreateTable(_described(name, types, key)))


def _fit(
    connection: sa.Connection, name: ReplicaName, types: Mapping[str, str], found: Mapping[str, _FoundColumn]
) -> list[str]:
    """Adds missing columns and returns them. Refuses the table if another column has a type that does not fit."""
    operations = Operations(MigrationContext.configure(connection))
    printed = _as_printed(connection, types)
    for column, sql_type in types.items():
        if column not in found:
            operations.add_column(name.table, sa.Column(column, _SqlType(sql_type)), schema=name.schema)
        elif not takes_unchanged(found[column].replica_type, printed[column]):
            quoted = quote_identifier(column)
            raise TableRefused(
                f"column {column!r} of replica table {name} has type {found[column].replica_type}, "
                f"and the source's is {printed[column]}, which it cannot hold unchanged",
                # The source may have dropped the column and added another one of that name: no value converts then.
                remedy=f"ALTER TABLE {quoted_name(name)} ALTER COLUMN {quoted} TYPE {sql_type} "
                f"USING {quoted}::{sql_type};  then restart the sink. If PostgreSQL cannot convert the values: "
                f"ALTER TABLE {quoted_name(name)} DROP COLUMN {quoted};  and the sink reads the topic again",
            )
    return [column for column in types if column not in found]


def _as_printed(connection: sa.Connection, types: Mapping[str, str]) -> dict[str, str]:
    """Returns how ``format_type`` spells these types. It asks a temporary table, because only that keeps modifiers."""
    table = sa.Table(
        "cdc wanted",
        sa.MetaData(),
        *(sa.Column(each, _SqlType(sql)) for each, sql in types.items()),
        prefixes=["TEMPORARY"],
    )
    connection.execute(sa.schema.CreateTable(table))
    printed = _columns(connection, ReplicaName("pg_temp", table.name))
    connection.execute(sa.schema.DropTable(table))
    return {column: found.replica_type for column, found in printed.items()}


def _described(name: ReplicaName, types: Mapping[str, str], key: Sequence[str]) -> sa.Table:
    columns = [sa.Column(column, _SqlType(sql_type), nullable=column not in key) for column, sql_type in types.items()]
    return sa.Table(name.table, sa.MetaData(), *columns, sa.PrimaryKeyConstraint(*key), schema=name.schema)


def _columns(connection: sa.Connection, name: ReplicaName) -> dict[str, _FoundColumn]:
    rows = connection.execute(_COLUMNS, {"table": quoted_name(name)})
    return {column: _FoundColumn(*rest) for column, *rest in rows}


def _arbiter(connection: sa.Connection, name: ReplicaName, key: Sequence[str]) -> dict[str, Equality]:
    """Returns the equality of each key column; empty when there is no unique index on the key."""
    rows = connection.execute(_ARBITER, {"table": quoted_name(name), "key": sorted(key)})
    return {column: Equality(*rest) for column, *rest in rows}


def _known_type(connection: sa.Connection, sql_type: str) -> str:
    """Returns the type, or text when the replica lacks it. Keeps anything but type names out of the sink's DDL."""
    if sql_type.removesuffix("[]") in _REFERENCES:
        return "text"
    try:
        with connection.begin_nested():  # for some texts to_regtype raises an error, which would end the transaction
            known = connection.scalar(sa.text("SELECT to_regtype(:type) IS NOT NULL"), {"type": sql_type})
    except sa.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg.Error) and is_retryable(error.orig):
            raise  # says nothing of the type: the server restarts, for example
        raise TableRefused(
            f"{sql_type!r} is not a type: {first_line(error.orig or error)}",
            remedy="report it with the column's definition, or create the replica's column by hand",
        ) from error
    return sql_type if known else "text"
