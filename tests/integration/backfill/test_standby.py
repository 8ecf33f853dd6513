"""Tables read from a physical standby, behind the primary now and then, beside a load on the primary."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from cdc.stack import Kafka
from tests.support import versioned
from tests.support.deployment import deployed
from tests.support.servers import Database, OwnStack
from tests.support.standby import Standby
from tests.support.waiting import eventually

_ROWS = 8_000


@pytest.mark.pg(18, matrix=False)  # 14, 15 and 17 come without pg_basebackup
def test_read_from_a_standby_that_is_behind(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    primary = own_stack.postgres()
    source = Database("postgres", primary.dsn())
    versioned.create(source, _ROWS)
    writer = versioned.Writer(source, 7, _ROWS)
    with Standby.of(primary) as standby, psycopg.connect(standby.dsn(), autocommit=True) as there:
        sections = {"snapshot": {"dsn": standby.dsn()}}
        with deployed(source, kafka.bootstrap, source, tmp_path, sections) as deployment:
            standby.wait_replayed(primary)
            there.execute("SELECT pg_wal_replay_pause()")
            writer.start()
            writer.wait_committed(50)
            deployment.start_bridge()
            deployment.wait_published()
            eventually(
                lambda: "the standby to replay" in deployment.backfills()["public.wide"].reason,
                message=lambda: f"a backfill that waits for the standby: {deployment.backfills()}",
            )
            there.execute("SELECT pg_wal_replay_resume()")
            deployment.wait_backfilled(*versioned.TABLES)
            writer.finish()
            deployment.assert_published(*versioned.TABLES)
            versions = versioned.VersionAudit().add(deployment.records(*versioned.TABLES))
            assert versions.faults == []
            assert versions.backfilled > _ROWS
