"""Records the file that holds a replica table's rows. TRUNCATE gives the table another, so the sink notices it."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL means not known; the next start of the sink fills it in
    op.execute("ALTER TABLE cdc.mirrored_table ADD COLUMN table_file bigint")
    op.execute("COMMENT ON COLUMN cdc.mirrored_table.table_file IS 'relfilenode of that table'")


def downgrade() -> None:
    op.execute("ALTER TABLE cdc.mirrored_table DROP COLUMN table_file")
