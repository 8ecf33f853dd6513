"""Records the oid of the replica table that the rows were written to: a later table of that name does not hold them."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL means not known; the next start of the sink fills it in
    op.execute("ALTER TABLE cdc.mirrored_table ADD COLUMN table_oid bigint")
    op.execute("COMMENT ON COLUMN cdc.mirrored_table.table_oid IS 'of the replica table that the rows were written to'")


def downgrade() -> None:
    op.execute("ALTER TABLE cdc.mirrored_table DROP COLUMN table_oid")
