"""A replica table whose source got another key: emptied, and where other columns make the key, its primary key moved.

The bridge deletes every old key from the topic before the first record under the new one, and publishes the table
again. So no row of before is left at the end; and while both kinds of records are on their way through several
partitions, a deletion under the old key must not hit a row under the new one: ``{"id":"5"}`` and ``{"id":5}`` are one
row to the replica. Records under old keys are therefore left out altogether (``TableStatements``), and their rows go at
once, in the transaction that records the definition.
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
    """Keys that records of a topic have had, and do not have by its newest definition, the last one."""
    return frozenset(frozenset(each.key) for each in schemas) - {frozenset(schemas[-1].key)}


def former_definitions(schemas: Sequence[TableSchema]) -> frozenset[str]:
    """Fingerprints of definitions by which the same rows have other keys than by the newest definition, the last one.

    Args:
        schemas: in the order in which they were used. Of those with one fingerprint, the last one counts: records do
            not tell them apart, and the same text is the same key to all of them.
    """
    newest = schemas[-1]
    last = {each.fingerprint: each for each in schemas}
    return frozenset(
        name for name, each in last.items() if name != newest.fingerprint and _has_other_keys(each, newest)
    )


def _has_other_keys(was: TableSchema, now: TableSchema) -> bool:
    """Whether keys are written otherwise; the bridge has then begun the topic anew, see ``contract.key_identity``.

    A column that only took another one's place writes the same values as the same bytes, so into the same partition,
    where their order is the topic's.
    """
    if set(was.key) != set(now.key):
        return True
    old, new = ({each.name: replace(each, number=0) for each in one.columns} for one in (was, now))
    return any(key_change(old[name], new[name]) for name in now.key)


def delete_all(connection: sa.Connection, table: str) -> None:
    """Delete the rows of a table, quoted, which nobody reads meanwhile; the caller commits."""
    # Not a weaker lock first, which readers may hold beside us and we then wait for with theirs in our hands
    connection.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".replace("%", "%%"))
    connection.exec_driver_sql(f"DELETE FROM {table}".replace("%", "%%"))


def rekey(connection: sa.Connection, table: str, schemas: Sequence[TableSchema]) -> bool:
    """Give a table that is keyed as one of its former definitions says the key of the newest; False when it is not.

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
