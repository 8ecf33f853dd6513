"""The sink's own tables in a replica that is not PostgreSQL: where the cut is, what to read next, each table's state.

They are those of ``cdc.sink.postgres.control``, with types that every database has: an LSN is text, a moment is a
number of microseconds since 1970.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

_metadata = sa.MetaData()

# The longest names that the configuration and Kafka allow: MariaDB's keys need lengths
_NAME, _TOPIC, _LSN = sa.String(48), sa.String(249), sa.String(20)

cut: Final = sa.Table(
    "cdc_cut",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("lsn", _LSN),
    sa.Column("applied_lsn", _LSN, nullable=False),
    sa.Column("commit_ts", sa.BigInteger, nullable=False),
    sa.Column("system_identifier", sa.Text, nullable=False),
    sa.Column("timeline", sa.BigInteger, nullable=False),
    sa.Column("database_oid", sa.BigInteger, nullable=False),
    sa.Column("applied_at", sa.BigInteger, nullable=False),
    sa.Column("caught_up_at", sa.BigInteger, nullable=False),
)

partition_offset: Final = sa.Table(
    "cdc_partition_offset",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("topic", _TOPIC, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("topic_id", sa.Text, nullable=False),
)

mirrored_table: Final = sa.Table(
    "cdc_mirrored_table",
    _metadata,
    sa.Column("name", _NAME, primary_key=True),
    sa.Column("topic", _TOPIC, primary_key=True),
    sa.Column("replica_table", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("stopped_key", sa.Text),
    sa.Column("stopped_partition", sa.Integer),
    sa.Column("stopped_offset", sa.BigInteger),
    sa.Column("rows_applied", sa.BigInteger, nullable=False),
    sa.Column("seen_table", sa.Text),
    sa.Column("read_since", sa.BigInteger),
)

TABLES: Final = (cut, partition_offset, mirrored_table)


def create(connection: sa.Connection) -> None:
    """Creates the tables that do not exist; the caller commits."""
    _metadata.create_all(connection)


def are_there(connection: sa.Connection) -> bool:
    """Returns whether a sink has been here."""
    return sa.inspect(connection).has_table(cut.name)


def read_state(connection: sa.Connection, name: str) -> dict[str, Any]:
    """Returns the recorded cut of a sink and its tables, as plain values."""
    at = connection.execute(sa.select(cut).where(cut.c.name == name)).mappings().first()
    tables = connection.execute(sa.select(mirrored_table).where(mirrored_table.c.name == name)).mappings().all()
    return {"cut": at and dict(at), "tables": [dict(each) for each in tables]}


def microseconds(seconds: float) -> int:
    """Returns a moment as the tables hold it."""
    return round(seconds * 1_000_000)


def seconds(moment: int) -> float:
    """Returns a moment of the tables in seconds since 1970."""
    return moment / 1_000_000
