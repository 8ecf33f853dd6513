"""Describes one table by the catalog, and the columns that identify its rows. No I/O.

The record key must be unique at every moment, published, and part of every old row that the server logs. A table
without such columns is refused, with the command that gives it some.

https://www.postgresql.org/docs/current/logical-replication-publication.html#LOGICAL-REPLICATION-PUBLICATION-REPLICA-IDENTITY
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from psycopg import sql

from cdc.base.table_names import in_yaml, qualified
from cdc.contract.change import ReplicaIdentity

KeySource: TypeAlias = Literal["primary key", "replica identity index", "configured", "none"]


@dataclass(frozen=True, slots=True)
class Index:
    """A unique index whose columns may serve as a key. It is ``immediate`` if checked for each row, not at commit."""

    name: str
    columns: tuple[str, ...]
    immediate: bool


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What the bridge must know about a table before it reads the first change.

    Attributes:
        kind: ``r`` for an ordinary table, ``p`` for the root of a partitioned one.
        key: the columns of the record key, in key order; empty when none is usable.
        toastable: published columns whose values may be stored out of line.
        estimated_rows: what ANALYZE or VACUUM last counted; 0 when they never did.
        columns: the published columns, in attribute order.
        primary_key: the primary key; None when there is none.
        unique_indexes: other unique indexes on NOT NULL columns, without predicate or expression.
        key_is_enforced: whether a constraint keeps the key unique and not NULL; false only for configured keys.
        leaves: namespace and name of each partition that holds rows.
        unlike_partitions: leaves whose replica identity differs from the root's: the name, and the command to fix it.
        configured_key: the key columns in ``source.keys``; empty when it names none.
        oid: tells apart two tables that had the same name one after the other.
        numbers: the columns' numbers, in the order of ``columns``.
        unlogged: the table, or those of its leaves, that are unlogged: the name, and the command to fix it.
        is_as_created: whether nothing ever replaced the table's file, or a leaf's, as SET LOGGED and TRUNCATE do.
        condition: which rows to publish, by ``source.rows``. None leaves the publication's row filter as it is; an
            empty text wants none.
    """

    namespace: str
    name: str
    kind: Literal["r", "p"]
    replica_identity: ReplicaIdentity
    key: tuple[str, ...]
    key_source: KeySource
    toastable: tuple[str, ...]
    estimated_rows: int
    columns: tuple[str, ...]
    primary_key: Index | None
    unique_indexes: tuple[Index, ...]
    key_is_enforced: bool
    leaves: tuple[tuple[str, str], ...]
    unlike_partitions: tuple[tuple[str, str], ...]
    configured_key: tuple[str, ...]
    oid: int
    numbers: tuple[int, ...] = ()
    unlogged: tuple[tuple[str, str], ...] = ()
    is_as_created: bool = True
    condition: str | None = None

    @property
    def qualified_name(self) -> str:
        """``namespace.name``, as ``table_names`` spells it: for people and for configuration keys."""
        return qualified(self.namespace, self.name)

    @property
    def quoted_name(self) -> str:
        """The name, quoted for SQL."""
        return quoted(self.namespace, self.name)


def quoted(*names: str) -> str:
    """Returns names joined by dots and quoted for SQL, always: a bare ``order`` would be a keyword."""
    return sql.Identifier(*names).as_string(None)


def select_grant(namespace: str, table: str, role: str) -> str:
    """Returns the commands that let a role read a table; ``table`` and ``role`` must be quoted for SQL."""
    return f"GRANT USAGE ON SCHEMA {quoted(namespace)} TO {role}; GRANT SELECT ON {table} TO {role};"


class Unusable(NamedTuple):
    """Why a table cannot be captured, in a sentence that names it, and the remedy."""

    reason: str
    remedy: str


def why_unusable(info: TableInfo) -> Unusable | None:
    """Returns why the bridge cannot capture this table, with the remedy; None when it can."""
    why = _reason_and_remedy(info)
    return None if why is None else Unusable(f"table {info.qualified_name} {why[0]}", why[1])


def _reason_and_remedy(info: TableInfo) -> tuple[str, str] | None:
    table = info.quoted_name
    if info.unlogged:
        what = "is" if info.kind == "r" else f"has partitions ({', '.join(name for name, _ in info.unlogged)}) that are"
        return f"{what} unlogged: changes are not in the WAL", " ".join(mend for _, mend in info.unlogged)
    if info.unlike_partitions:
        # The server sends the old row as the leaf logged it, but labels it with the root's identity.
        return (
            "has partitions with another replica identity than its root: "
            + ", ".join(name for name, _ in info.unlike_partitions),
            " ".join(mend for _, mend in info.unlike_partitions),
        )
    if info.configured_key:
        unknown = [column for column in info.configured_key if column not in info.columns]
        if unknown:
            return (
                f"has no published column {', '.join(map(repr, unknown))}, which source.keys names",
                f"correct source.keys for {info.qualified_name}; its columns are {', '.join(info.columns)}",
            )
        if info.replica_identity is not ReplicaIdentity.FULL:
            return (
                f"has a key from source.keys, but its replica identity is {info.replica_identity.name}, so the old key "
                "of a deleted or moved row is not in the stream",
                f"ALTER TABLE {table} REPLICA IDENTITY FULL;",
            )
    if info.key:
        return None
    return _why_no_key(info), _key_remedy(info)


def _why_no_key(info: TableInfo) -> str:
    if info.primary_key is not None and not info.primary_key.immediate:
        return "has a DEFERRABLE primary key: inside a transaction two rows may hold the same key"
    if info.primary_key is not None and not set(info.primary_key.columns) <= set(info.columns):
        return "has a primary key over a generated column, which is not published"
    if info.replica_identity is ReplicaIdentity.NOTHING:
        return "has REPLICA IDENTITY NOTHING: the server refuses UPDATE and DELETE while it is published"
    if info.replica_identity is ReplicaIdentity.INDEX:
        return "has a replica identity index that is gone or not usable as a key"
    return "has no primary key, no replica identity index and no key in source.keys"


def _key_remedy(info: TableInfo) -> str:
    table = info.quoted_name
    primary_key = info.primary_key
    if primary_key is not None and set(primary_key.columns) <= set(info.columns):
        if primary_key.immediate:
            return f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT;"
        columns = ", ".join(map(quoted, primary_key.columns))
        return (
            f"ALTER TABLE {table} DROP CONSTRAINT {quoted(primary_key.name)}, "
            f"ADD CONSTRAINT {quoted(primary_key.name)} PRIMARY KEY ({columns});"
        )
    if primary_key is not None:
        hidden = [column for column in primary_key.columns if column not in info.columns]
        drop = ", ".join(f"ALTER COLUMN {quoted(column)} DROP EXPRESSION" for column in hidden)
        return f"ALTER TABLE {table} {drop};  -- the column keeps its values and is from then on written like any other"
    usable = [index for index in info.unique_indexes if index.immediate and set(index.columns) <= set(info.columns)]
    if usable:
        return f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {quoted(usable[0].name)};"
    return (
        f"ALTER TABLE {table} ADD COLUMN row_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;"
        "  -- or ADD PRIMARY KEY over columns that it has; or REPLICA IDENTITY FULL, and columns that are unique "
        f"together in source.keys: {{{in_yaml(info.qualified_name)}: […]}}"
    )


def choose_key(
    identity: ReplicaIdentity,
    primary_key: Index | None,
    identity_index: Index | None,
    configured: Sequence[str],
    columns: Sequence[str],
) -> tuple[tuple[str, ...], KeySource]:
    """Returns the record key: columns that are published, unique at every moment, and part of every old tuple.

    A configured key wins, but needs FULL. Otherwise it is the primary key in its own order, unless the identity is an
    index that does not cover it. Otherwise it is that index's columns. A deferrable key does not qualify:
    ``id = id + 1`` on two rows would write key 2 and then delete it.
    """
    published = set(columns)
    if configured:
        usable = identity is ReplicaIdentity.FULL and set(configured) <= published
        return (tuple(configured), "configured") if usable else ((), "none")
    if identity is ReplicaIdentity.NOTHING:
        return (), "none"
    carried = published
    if identity is ReplicaIdentity.INDEX:
        carried = published & set(identity_index.columns) if identity_index else set()
    if primary_key and primary_key.immediate and set(primary_key.columns) <= carried:
        return primary_key.columns, "primary key"
    if identity_index and set(identity_index.columns) <= carried:
        return identity_index.columns, "replica identity index"
    return (), "none"
