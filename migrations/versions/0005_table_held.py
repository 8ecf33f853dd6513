"""Records whose lock keeps rows out of a replica table. The cuts leave the table out until the lock is gone."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE cdc.mirrored_table ADD COLUMN held_by text, ADD COLUMN held_since timestamptz")
    op.execute("COMMENT ON COLUMN cdc.mirrored_table.held_by IS 'whose lock keeps rows out of the table'")
    op.execute("COMMENT ON COLUMN cdc.mirrored_table.held_since IS 'since then the table is left out of the cut'")


def downgrade() -> None:
    op.execute("ALTER TABLE cdc.mirrored_table DROP COLUMN held_by, DROP COLUMN held_since")
