"""Adds what the sink needs to call a table exact: the id of the topic of its offsets, and how recently it read them."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The topics of the stored offsets are not known. No topic has the id '', so every table is rebuilt once
    op.execute("ALTER TABLE cdc.partition_offset ADD COLUMN topic_id text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE cdc.partition_offset ALTER COLUMN topic_id DROP DEFAULT")
    op.execute("""
        ALTER TABLE cdc.cut
            ALTER COLUMN lsn DROP NOT NULL,
            ADD COLUMN applied_lsn pg_lsn,
            ADD COLUMN caught_up_at timestamptz
    """)
    op.execute("UPDATE cdc.cut SET applied_lsn = lsn, lsn = NULL, caught_up_at = applied_at")
    op.execute("ALTER TABLE cdc.cut ALTER COLUMN applied_lsn SET NOT NULL, ALTER COLUMN caught_up_at SET NOT NULL")
    op.execute("""
        ALTER TABLE cdc.mirrored_table
            DROP CONSTRAINT mirrored_table_state_check,
            ADD COLUMN seen_table text,
            ADD COLUMN read_since timestamptz
    """)
    op.execute("UPDATE cdc.mirrored_table SET state = 'catching_up' WHERE state = 'exact'")
    op.execute("""
        ALTER TABLE cdc.mirrored_table ADD CONSTRAINT mirrored_table_state_check
            CHECK (state IN ('loading', 'catching_up', 'rebuilding', 'exact', 'stopped'))
    """)
    op.execute("""
        COMMENT ON COLUMN cdc.cut.lsn IS
            'tables in state exact equal the source at this LSN; NULL while no such LSN is known: the sink catches up'
    """)
    op.execute("COMMENT ON COLUMN cdc.cut.applied_lsn IS 'how far rows are applied, also while the sink catches up'")
    op.execute("COMMENT ON COLUMN cdc.cut.caught_up_at IS 'then the topics held nothing that is not applied'")
    op.execute("COMMENT ON COLUMN cdc.mirrored_table.seen_table IS 'while rebuilding: the keys met so far'")
    op.execute("""
        COMMENT ON COLUMN cdc.mirrored_table.read_since IS
            'what cut.caught_up_at is for the others, of a table that is not part of the cut'
    """)


def downgrade() -> None:
    op.execute("DELETE FROM cdc.cut WHERE lsn IS NULL")
    op.execute("ALTER TABLE cdc.cut ALTER COLUMN lsn SET NOT NULL, DROP COLUMN applied_lsn, DROP COLUMN caught_up_at")
    op.execute("ALTER TABLE cdc.partition_offset DROP COLUMN topic_id")
    op.execute("UPDATE cdc.mirrored_table SET state = 'loading' WHERE state IN ('catching_up', 'rebuilding')")
    op.execute("""
        ALTER TABLE cdc.mirrored_table
            DROP CONSTRAINT mirrored_table_state_check,
            DROP COLUMN seen_table,
            DROP COLUMN read_since,
            ADD CONSTRAINT mirrored_table_state_check CHECK (state IN ('loading', 'exact', 'stopped'))
    """)
