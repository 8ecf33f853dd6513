"""A replica table whose source got another key: emptied, and its primary key moved.

The bridge deletes every old key from the topic before the first record under the new one, and publishes the table
again. So no row of before is left at the end; and while both kinds of records are on their way through several
partitions, a deletion under the old key must not hit a row under the new one. Records under old keys are therefore left
out altogether (``TableStatements``), and their rows go at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from cdc.pgtypes import quote_identifier
from cdc.record import TableSchema

_PRIMARY_KEY: Final = sa.text("""
    SELECT c.conname, ARRAY(SELECT a.attname::text FROM pg_attribute a
                            WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey))
    FROM pg_constraint c WHERE c.conrelid = to_regclass(:table) AND c.contype = 'p'
""")


def former_keys(schemas: Sequence[TableSchema]) -> frozenset[frozenset[str]]:
    """Keys that records of a topic have had, and do not have by its newest definition, the last one."""
    return frozenset(frozenset(each.key) for each in schemas) - {frozenset(schemas[-1].key)}


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
    # Not a weaker lock first, which readers may hold beside us and we then wait for with theirs in our hands
    connection.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".replace("%", "%%"))
    connection.exec_driver_sql(f"DELETE FROM {table}".replace("%", "%%"))
    connection.exec_driver_sql(f"ALTER TABLE {table} {', '.join(actions)}".replace("%", "%%"))
    return True
