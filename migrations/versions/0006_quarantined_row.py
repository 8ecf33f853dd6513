"""Records the rows that a replica table refuses, and that it therefore lacks; and a state for such a table."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE cdc.quarantined_row (
            name text, topic text, key_digest bytea, key bytea NOT NULL, partition integer NOT NULL,
            record_offset bigint NOT NULL, reason text NOT NULL, since timestamptz NOT NULL DEFAULT clock_timestamp(),
            PRIMARY KEY (name, topic, key_digest)
        )
    """)
    op.execute("COMMENT ON TABLE cdc.quarantined_row IS 'rows that a replica table refuses, and therefore lacks'")
    _states("'loading', 'catching_up', 'rebuilding', 'exact', 'excepted', 'stopped'")


def downgrade() -> None:
    op.execute("UPDATE cdc.mirrored_table SET state = 'loading' WHERE state = 'excepted'")
    _states("'loading', 'catching_up', 'rebuilding', 'exact', 'stopped'")
    op.execute("DROP TABLE cdc.quarantined_row")


def _states(listed: str) -> None:
    op.execute(f"""
        ALTER TABLE cdc.mirrored_table DROP CONSTRAINT mirrored_table_state_check,
        ADD CONSTRAINT mirrored_table_state_check CHECK (state IN ({listed}))
    """)
