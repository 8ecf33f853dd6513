"""Tables read from a physical standby, behind the primary now and then, beside a load on the primary."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.base.errors import SourceRefused, SourceUnavailable
from cdc.bridge.capture.standby import is_standby_of
from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillRequest
from cdc.kafka.publish.requests import write_request
from cdc.lab.stack import Kafka, Postgres, PostgresServer
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


@pytest.mark.pg(18, matrix=False)
def test_a_standby_that_follows_another_server_is_not_read(own_stack: OwnStack, other_postgres: Postgres) -> None:
    """After a failover the same positions are those of other rows."""
    old = own_stack.postgres()
    with Standby.of(old) as new, Standby.of(new) as third, ExitStack() as stack:

        def opened(server: PostgresServer | Postgres) -> psycopg.Connection[Any]:
            return stack.enter_context(psycopg.connect(server.dsn(), autocommit=True))

        old_one, standby = opened(old), opened(third)
        third.wait_replayed(old)
        assert is_standby_of(standby, old_one)
        assert not is_standby_of(old_one, opened(old))
        with pytest.raises(SourceRefused, match="of another server: neither the source nor a standby of it"):
            is_standby_of(opened(other_postgres), old_one)
        standby.execute("SELECT pg_wal_replay_pause()")
        new.promote()
        new_one = opened(new)
        with pytest.raises(SourceUnavailable, match="is on timeline 1, and the source on 2: it does not follow"):
            is_standby_of(standby, new_one)
        standby.execute("SELECT pg_wal_replay_resume()")
        new_one.execute("CREATE TABLE only_here (id int); CHECKPOINT")
        third.wait_replayed(new)
        standby.execute("CHECKPOINT")
        assert is_standby_of(standby, new_one)
        with pytest.raises(SourceRefused, match="is on timeline 2, and the source on 1: it follows another server"):
            is_standby_of(standby, old_one)


@pytest.mark.pg(18, matrix=False)
def test_transactions_that_a_standby_takes_for_finished(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """Open when the table joins or a chunk is read, they commit later: no row is lost, and no TRUNCATE is undone."""
    primary = own_stack.postgres(settings={"max_prepared_transactions": "2"})
    source = Database("postgres", primary.dsn())
    source.execute(
        "CREATE TABLE first (id int PRIMARY KEY); CREATE TABLE emptied (id int PRIMARY KEY, pad text);"
        "INSERT INTO emptied SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i"
    )
    with Standby.of(primary) as standby, ExitStack() as stack:
        sections = {"snapshot": {"dsn": standby.dsn(), "parallel": 1}}
        deployment = stack.enter_context(deployed(source, kafka.bootstrap, source, tmp_path, sections))
        deployment.start_bridge()
        deployment.wait_backfilled("public.first", "public.emptied")
        source.execute("CREATE TABLE late (id int PRIMARY KEY, s text); INSERT INTO late VALUES (1, 'old'), (2, 'old')")
        plain, nested, truncating = (stack.enter_context(psycopg.connect(source.dsn)) for _ in range(3))
        plain.execute("INSERT INTO late VALUES (10, 'open')")
        plain.execute("UPDATE late SET s = 'new' WHERE id = 1")
        nested.execute("INSERT INTO first VALUES (0)")
        for number in range(70):  # more than a snapshot has room for
            nested.execute(f"SAVEPOINT s{number}")
            nested.execute("INSERT INTO late VALUES (%s, 'nested')", (100 + number,))
        with source.connect(autocommit=False) as preparing:
            preparing.execute("INSERT INTO late VALUES (20, 'prepared')")
            preparing.execute("PREPARE TRANSACTION 'later'")
        source.execute("INSERT INTO late VALUES (3, 'committed behind them')")

        def waits() -> bool:
            progress = deployment.backfills().get("public.late")
            assert progress is None or progress.state != "done", "backfilled beside transactions of before it joined"
            return progress is not None and "to become visible" in progress.reason

        eventually(waits, 60, lambda: f"late waits: {deployment.backfills()}\n{deployment.bridge.tail()}")
        plain.commit()
        nested.commit()
        source.execute("COMMIT PREPARED 'later'")
        deployment.wait_backfilled("public.late")

        truncating.execute("INSERT INTO first VALUES (1)")
        source.execute("INSERT INTO first VALUES (2)")
        again = BackfillRequest("again", "start", ("public.emptied",), rate=4_000)
        write_request({"bootstrap.servers": kafka.bootstrap}, progress_topic(deployment.name), again)

        def is_read() -> bool:
            progress = deployment.backfills()["public.emptied"]
            return progress.request == "again" and progress.rows > 0

        eventually(is_read, 30, lambda: f"rows of emptied: {deployment.backfills()}\n{deployment.bridge.tail()}")
        truncating.execute("TRUNCATE emptied")
        truncating.execute("INSERT INTO emptied VALUES (7, 'behind it')")
        truncating.commit()
        deployment.wait_backfilled()
        deployment.assert_published("public.first", "public.late", "public.emptied")
