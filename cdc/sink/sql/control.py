"""The sink's own tables in a replica that is not PostgreSQL: where the cut is, what to read next, each table's state.

They are those of ``cdc.sink.postgres.control``, with types that every database has: an LSN is text, a moment is a
number of microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import LONGTEXT

MARIADB_TABLE: Final[Mapping[str, Any]] = {
    "mariadb_engine": "InnoDB",
    "mariadb_row_format": "DYNAMIC",
    "mariadb_charset": "utf8mb4",
    # Tells `a`, `A` and `a ` apart
    "mariadb_collate": "utf8mb4_nopad_bin",
}
"""Options of a table that only MariaDB reads, whatever its server's defaults are."""

_metadata = sa.MetaData()

# The longest names that the configuration and Kafka allow: MariaDB's keys need lengths
_NAME, _TOPIC, _LSN = sa.String(48), sa.String(249), sa.String(20)
_TEXT = sa.Text().with_variant(LONGTEXT(), "mariadb")

cut: Final = sa.Table(
    "cdc_cut",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("lsn", _LSN),
    sa.Column("applied_lsn", _LSN, nullable=False),
    sa.Column("commit_ts", sa.BigInteger, nullable=False),
    sa.Column("system_identifier", _TEXT, nullable=False),
    sa.Column("timeline", sa.BigInteger, nullable=False),
    sa.Column("database_oid", sa.BigInteger, nullable=False),
    sa.Column("applied_at", sa.BigInteger, nullable=False),
    sa.Column("caught_up_at", sa.BigInteger, nullable=False),
    **MARIADB_TABLE,
)

partition_offset: Final = sa.Table(
    "cdc_partition_offset",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("topic", _TOPIC, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("topic_id", _TEXT, nullable=False),
    **MARIADB_TABLE,
)

mirrored_table: Final = sa.Table(
    "cdc_mirrored_table",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("topic", _TOPIC, primary_key=True),
    sa.Column("replica_table", _TEXT, nullable=False),
    sa.Column("fingerprint", _TEXT, nullable=False),
    sa.Column("state", _TEXT, nullable=False),
    sa.Column("reason", _TEXT),
    sa.Column("stopped_key", _TEXT),
    sa.Column("stopped_partition", sa.Integer),
    sa.Column("stopped_offset", sa.BigInteger),
    sa.Column("rows_applied", sa.BigInteger, nullable=False),
    sa.Column("seen_table", _TEXT),
    sa.Column("read_since", sa.BigInteger),
    **MARIADB_TABLE,
)

quarantined_row: Final = sa.Table(
    "cdc_quarantined_row",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("topic", _TOPIC, primary_key=True),
    sa.Column("key_digest", sa.String(64), primary_key=True),
    sa.Column("key", _TEXT, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("record_offset", sa.BigInteger, nullable=False),
    sa.Column("reason", _TEXT, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    **MARIADB_TABLE,
)
"""The digest is the key's SHA-256 in hexadecimal: an index takes no key of any length."""

TABLES: Final = (cut, partition_offset, mirrored_table, quarantined_row)


def create(connection: sa.Connection) -> None:
    """Creates the tables that do not exist; the caller commits."""
    _metadata.create_all(connection)


def are_there(connection: sa.Connection) -> bool:
    """Returns whether a sink has been here."""
    return sa.inspect(connection).has_table(cut.name)


def read_state(connection: sa.Connection, name: str) -> dict[str, Any]:
    """Returns the recorded cut of a sink, its tables and the rows that these refuse, as plain values."""
    at = connection.execute(sa.select(cut).where(cut.c.name == name)).mappings().first()
    tables = connection.execute(sa.select(mirrored_table).where(mirrored_table.c.name == name)).mappings().all()
    # The sink's own tables are those of an older version until it starts
    has_refused = sa.inspect(connection).has_table(quarantined_row.name)
    of_sink = sa.select(quarantined_row).where(quarantined_row.c.name == name)
    refused = connection.execute(of_sink).mappings().all() if has_refused else ()
    return {"cut": at and dict(at), "tables": [dict(each) for each in tables], "refused": [*map(dict, refused)]}


def microseconds(seconds: float) -> int:
    """Returns a moment as the tables hold it."""
    return round(seconds * 1_000_000)


def seconds(moment: int) -> float:
    """Returns a moment of the tables in seconds since 1970."""
    return moment / 1_000_000
