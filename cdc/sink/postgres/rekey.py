"""Empties a replica table whose source got another key, and moves its primary key if other columns make up the key.

When a key changes, the bridge deletes every old key from the topic and then publishes the whole table again under the
new keys. So no old row remains in the end. In between, records with old and new keys are mixed, because they come from
several partitions. A tombstone with an old key must not delete a row with a new one: to the replica, ``{"id":"5"}`` and
``{"id":5}`` are the same row. Therefore the sink ignores all records with old keys (``TableStatements``) and deletes
their rows at once, in the transaction that records the new definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from cdc.contract.key_identity import key_change
from cdc.contract.pgtypes import quote_identifier
from cdc.contract.record import TableSchema

_PRIMARY_KEY: Final = sa.text("""
    SELECT c.conname, ARRAY(SELECT a.attname::text FROM pg_attribute a
                            WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey))
    FROM pg_constraint c WHERE c.conrelid = to_regclass(:table) AND c.contype = 'p'
""")


def former_keys(schemas: Sequence[TableSchema]) -> frozenset[frozenset[str]]:
    """Returns the column sets of former keys: those of older definitions that differ from the newest, the last one."""
    return frozenset(frozenset(each.key) for each in schemas) - {frozenset(schemas[-1].key)}


def former_definitions(schemas: Sequence[TableSchema]) -> frozenset[str]:
    """Returns the fingerprints of definitions that give a row another key than the newest definition, the last one.

    Args:
        schemas: in the order in which they were used. If several have the same fingerprint, the last one counts: a
            record does not say which of them it was written with, and the same text is the same key in all of them.
    """
    newest = schemas[-1]
    last = {each.fingerprint: each for each in schemas}
    return frozenset(
        name for name, each in last.items() if name != newest.fingerprint and _has_other_keys(each, newest)
    )


def _has_other_keys(was: TableSchema, now: TableSchema) -> bool:
    """Returns whether the two definitions write the same key differently, by ``contract.key_identity`` or its schema.

    If they do, the bridge has begun the topic anew. A column that only changed its position writes the same values as
    the same bytes, so to the same partition, which keeps their order.
    """
    if set(was.key) != set(now.key) or was.key_schema != now.key_schema:
        return True
    old, new = ({each.name: replace(each, number=0) for each in one.columns} for one in (was, now))
    return any(key_change(old[name], new[name]) for name in now.key)


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
