"""The sink's own tables, schema ``cdc`` in the replica: where the cut is, what to read next, how each table fares.

Alembic (``migrations/``) creates them; here they are described for use. One row or set of rows per sink name, so that
sinks of several sources may share a database.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.types import UserDefinedType

from cdc.base.lsn import LSN

CONTROL_SCHEMA: Final = "cdc"
"""The schema of the tables in which the sink keeps its state."""

_metadata = sa.MetaData(schema=CONTROL_SCHEMA)


class PgLsn(UserDefinedType[LSN]):
    """``pg_lsn`` ↔ ``LSN``."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "pg_lsn"

    def bind_processor(self, _dialect: sa.Dialect) -> Any:
        return lambda value: None if value is None else str(value)

    def bind_expression(self, bindvalue: sa.BindParameter[LSN]) -> sa.ColumnElement[LSN]:
        return sa.cast(bindvalue, self)

    def result_processor(self, _dialect: sa.Dialect, _coltype: object) -> Any:
        return lambda value: None if value is None else LSN.parse(value)


cut: Final = sa.Table(
    "cut",
    _metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("lsn", PgLsn),
    sa.Column("applied_lsn", PgLsn, nullable=False),
    sa.Column("commit_ts", sa.BigInteger, nullable=False),
    sa.Column("system_identifier", sa.Text, nullable=False),
    sa.Column("timeline", sa.BigInteger, nullable=False),
    sa.Column("database_oid", sa.BigInteger, nullable=False),
    sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("caught_up_at", sa.DateTime(timezone=True), nullable=False),
)
"""All tables in state ``exact`` together equal the source at ``lsn``: everything that committed before it, no more.
While the sink catches up there is no such LSN, and it is NULL; ``applied_lsn`` says how far the rows are. At
``caught_up_at`` the topics held nothing that is not applied."""

partition_offset: Final = sa.Table(
    "partition_offset",
    _metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("topic_id", sa.Text, nullable=False),
)
"""The first record that is not applied yet, of the topic with this id: a topic's name outlives the topic."""

mirrored_table: Final = sa.Table(
    "mirrored_table",
    _metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("replica_table", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("stopped_key", sa.Text),
    sa.Column("stopped_partition", sa.Integer),
    sa.Column("stopped_offset", sa.BigInteger),
    sa.Column("rows_applied", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("seen_table", sa.Text),
    sa.Column("read_since", sa.DateTime(timezone=True)),
    sa.Column("table_oid", sa.BigInteger),
    sa.Column("table_file", sa.BigInteger),
    sa.Column("held_by", sa.Text),
    sa.Column("held_since", sa.DateTime(timezone=True)),
)
"""``state`` is one of ``contract.table_states.TableState``, which says what each means. A table that is ``rebuilding``
or ``stopped`` has a ``reason``; while one is rebuilt, ``seen_table`` holds the keys that were met so far; the record
that stopped a table is named by ``stopped_key``, ``stopped_partition`` and ``stopped_offset``.

``read_since`` is ``cut.caught_up_at`` of a table that is not part of the cut. ``table_oid`` is the replica table's: a
table's name outlives the table. ``table_file`` is its ``relfilenode``: a table outlives what is emptied. ``held_by``
says whose lock keeps rows out of a table, which is left out of the cut for that, since ``held_since``."""

quarantined_row: Final = sa.Table(
    "quarantined_row",
    _metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("key_digest", sa.LargeBinary, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("record_offset", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("since", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
)
"""The newest records of their keys that replica tables refuse, and why. ``key`` is in JSON, and ``key_digest`` its
SHA-256, because an index takes no key of any length."""
