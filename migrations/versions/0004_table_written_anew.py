"""Which file the rows of a replica table were written to: TRUNCATE, or a crash of an unlogged table, leaves another."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL: not known; the next start takes notice
    op.execute("ALTER TABLE cdc.mirrored_table ADD COLUMN table_file bigint")
    op.execute("COMMENT ON COLUMN cdc.mirrored_table.table_file IS 'relfilenode of that table'")


def downgrade() -> None:
    op.execute("ALTER TABLE cdc.mirrored_table DROP COLUMN table_file")
