"""Empties a replica table whose source got another key, and moves its primary key if other columns make up the key.

When a key changes, the bridge deletes every old key from the topic and then publishes the whole table again under the
new keys. So no old row remains in the end. In between, records with old and new keys are mixed, because they come from
several partitions. A tombstone with an old key must not delete a row with a new one: to the replica, ``{"id":"5"}`` and
``{"id":5}`` are the same row. Therefore the sink ignores all records with old keys (``TableStatements``) and deletes
their rows at once, in the transaction that records the new definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from cdc.contract.pgtypes import quote_identifier
from cdc.contract.record import TableSchema
from cdc.sink.definitions import former_keys

_PRIMARY_KEY: Final = sa.text("""
    SELECT c.conname, ARRAY(SELECT a.attname::text FROM pg_attribute a
                            WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey))
    FROM pg_constraint c WHERE c.conrelid = to_regclass(:table) AND c.contype = 'p'
""")


def delete_all(connection: sa.Connection, table: str) -> None:
    """Deletes all rows of a table and locks readers out until the caller commits. ``table`` is quoted."""
    # The strongest lock at once. To upgrade a weaker one is to wait for readers who may in turn wait for us: a deadlock
    connection.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".replace("%", "%%"))
    connection.exec_driver_sql(f"DELETE FROM {table}".replace("%", "%%"))


def rekey(connection: sa.Connection, table: str, schemas: Sequence[TableSchema]) -> bool:
    """Gives a table that has a former primary key the newest one, and empties it. Returns False if its key is another.

    Args:
        connection: to the replica; the caller commits.
        table: quoted.
        schemas: in the order in which they were used.
    """
    found = connection.execute(_PRIMARY_KEY, {"table": table}).first()
    if found is None or frozenset(found[1]) not in former_keys(schemas):
        return False
    name, old = found
    key = schemas[-1].key
    actions = [
        f"DROP CONSTRAINT {quote_identifier(name)}",
        f"ADD PRIMARY KEY ({', '.join(map(quote_identifier, key))})",
        *(f"ALTER COLUMN {quote_identifier(column)} DROP NOT NULL" for column in old if column not in key),
    ]
    delete_all(connection, table)
    connection.exec_driver_sql(f"ALTER TABLE {table} {', '.join(actions)}".replace("%", "%%"))
    return True
