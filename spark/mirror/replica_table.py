"""One replica table and its staging table: made from definitions, widened when those grow, merged into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.base.table_names import qualified
from cdc.contract.pgtypes import quote_identifier
from cdc.spark.errors import JobError

KEY: Final = "cdc_key"

_REFERENCES: Final = frozenset(
    {"regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc"}
    | {"regprocedure", "regrole", "regtype"}
)
"""Types whose values name objects of their own database, which this one need not have."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

Connection = psycopg.Connection[Any]


class ReplicaTable:
    """``namespace.name`` in the target database.

    Attributes:
        columns: names of the published columns, once established.
        stage: where executors put rows: without WAL, because what a crash leaves of it counts for nothing.
    """

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.columns: tuple[str, ...] = ()
        self._target = sql.Identifier(namespace, name)
        self.stage = ("cdc_mirror", "")

    def __str__(self) -> str:
        return qualified(self.namespace, self.name)

    def exists(self, connection: Connection) -> bool:
        """Whether anything of that name is there."""
        return self._oid(connection) is not None

    def establish(self, connection: Connection, columns: Mapping[str, str], key: Sequence[str]) -> None:
        """Create the table, or give it the columns and types that it lacks; the stage is made anew.

        Raises:
            JobError: the source has a column of a name that we need.
        """
        if KEY in columns:
            raise JobError(f"the source of {self} has a column {KEY}", remedy="this table cannot be mirrored this way")
        types = {name: _known_type(connection, sql_type) for name, sql_type in columns.items()}
        self.columns = tuple(columns)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.namespace)))
        described = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in types.items()]
        is_new = not self.exists(connection)
        if is_new:
            self._create(connection, described, key)
        self.stage = ("cdc_mirror", f"stage_{self._oid(connection)}")
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(*self.stage)))
        connection.execute(
            sql.SQL(
                "CREATE UNLOGGED TABLE {} (cdc_key text, cdc_offset bigint, cdc_deleted boolean, cdc_token text, {})"
            ).format(sql.Identifier(*self.stage), sql.SQL(", ").join(described))
        )
        if not is_new:
            self._fit(connection, types)

    def merge(self, connection: Connection, token: str) -> None:
        """Rows that were staged under ``token`` become the table's; a task that ran twice staged some twice."""
        stage, key = sql.Identifier(*self.stage), sql.Identifier(KEY)
        names = sql.SQL(", ").join(map(sql.Identifier, (KEY, *self.columns)))
        assignments = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in self.columns
        )
        connection.execute(
            sql.SQL(
                "DELETE FROM {} t USING {} s WHERE t.cdc_key = s.cdc_key AND s.cdc_deleted AND s.cdc_token = {}"
            ).format(self._target, stage, sql.Literal(token))
        )
        connection.execute(
            sql.SQL(
                "INSERT INTO {target} ({names}) SELECT DISTINCT ON (cdc_key) {names} FROM {stage}"
                " WHERE NOT cdc_deleted AND cdc_token = {token} ORDER BY cdc_key, cdc_offset DESC"
                " ON CONFLICT ({key}) DO UPDATE SET {assignments}"
            ).format(
                target=self._target,
                names=names,
                stage=stage,
                token=sql.Literal(token),
                key=key,
                assignments=assignments,
            )
        )
        connection.execute(sql.SQL("TRUNCATE {}").format(stage))

    def drop(self, connection: Connection) -> None:
        """The table and its stage, if they are there."""
        oid = self._oid(connection)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._target))
        connection.execute(
            sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier("cdc_mirror", f"stage_{oid}"))
        )  # fmt: skip

    def _create(self, connection: Connection, described: Sequence[sql.Composed], key: Sequence[str]) -> None:
        connection.execute(
            sql.SQL('CREATE TABLE {} ({} text COLLATE "C" PRIMARY KEY, {})').format(
                self._target, sql.Identifier(KEY), sql.SQL(", ").join(described)
            )
        )
        connection.execute(
            sql.SQL("CREATE INDEX ON {} ({})").format(self._target, sql.SQL(", ").join(map(sql.Identifier, key)))
        )

    def _fit(self, connection: Connection, types: Mapping[str, str]) -> None:
        found, wanted = self._types(connection, str(self._quoted())), self._types(connection, _quoted(*self.stage))
        for name, sql_type in types.items():
            column = sql.Identifier(name)
            if name not in found:
                connection.execute(
                    sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(self._target, column, sql.SQL(sql_type))
                )
            elif found[name] != wanted[name]:
                connection.execute(
                    sql.SQL("ALTER TABLE {0} ALTER COLUMN {1} TYPE {2} USING {1}::text::{2}").format(
                        self._target, column, sql.SQL(sql_type)
                    )
                )

    def _types(self, connection: Connection, name: str) -> dict[str, str]:
        return dict(connection.execute(_COLUMNS, (name,)).fetchall())

    def _oid(self, connection: Connection) -> int | None:
        row = connection.execute("SELECT to_regclass(%s)::oid::bigint", (self._quoted(),)).fetchone()
        return None if row is None else row[0]

    def _quoted(self) -> str:
        return _quoted(self.namespace, self.name)


def owned_by_sink(connection: Connection, table: ReplicaTable) -> str | None:
    """The topic that a sink mirrors into this table, None when no sink does."""
    row = connection.execute("SELECT to_regclass('cdc.mirrored_table') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return None
    row = connection.execute("SELECT topic FROM cdc.mirrored_table WHERE replica_table = %s", (str(table),)).fetchone()
    return None if row is None else str(row[0])


def _known_type(connection: Connection, sql_type: str) -> str:
    """The type, or text when this database has no such type; nothing that is no type name gets into our DDL."""
    if sql_type.removesuffix("[]") in _REFERENCES:
        return "text"
    try:
        with connection.transaction():
            row = connection.execute("SELECT to_regtype(%s) IS NOT NULL", (sql_type,)).fetchone()
    except psycopg.Error as error:
        raise JobError(f"{sql_type!r} is no type", remedy="see who else writes into the schemas topic") from error
    return sql_type if row is not None and row[0] else "text"


def _quoted(namespace: str, name: str) -> str:
    return f"{quote_identifier(namespace)}.{quote_identifier(name)}"
