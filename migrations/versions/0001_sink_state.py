"""Creates the tables of the sink's state: the cut, offsets, and mirrored tables."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE cdc.cut (
            name text PRIMARY KEY,
            lsn pg_lsn NOT NULL,
            commit_ts bigint NOT NULL,
            system_identifier text NOT NULL,
            timeline bigint NOT NULL,
            database_oid bigint NOT NULL,
            applied_at timestamptz NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE cdc.partition_offset (
            name text,
            topic text,
            partition integer,
            next_offset bigint NOT NULL,
            PRIMARY KEY (name, topic, partition)
        )
    """)
    op.execute("""
        CREATE TABLE cdc.mirrored_table (
            name text,
            topic text,
            replica_table text NOT NULL,
            fingerprint text NOT NULL,
            state text NOT NULL CHECK (state IN ('loading', 'exact', 'stopped')),
            reason text,
            stopped_key text,
            stopped_partition integer,
            stopped_offset bigint,
            rows_applied bigint NOT NULL DEFAULT 0,
            PRIMARY KEY (name, topic),
            UNIQUE (replica_table)
        )
    """)
    op.execute("COMMENT ON TABLE cdc.cut IS 'per sink: mirrored tables in state exact equal the source at this LSN'")
    op.execute("COMMENT ON TABLE cdc.partition_offset IS 'per sink: the first Kafka record not applied yet'")
    op.execute("COMMENT ON TABLE cdc.mirrored_table IS 'per sink: each replica table, its state, and what stopped it'")


def downgrade() -> None:
    op.execute("DROP TABLE cdc.mirrored_table, cdc.partition_offset, cdc.cut")
