"""The primary dies and its standby takes over: the bridge goes on there, or says what is missing and heals it."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from cdc.base.config import load
from cdc.base.errors import GapError
from cdc.bridge.source.failover import check_failover, failover_facts
from cdc.bridge.source.preflight import Finding
from cdc.lab.stack import Kafka, PostgresMajor, PostgresServer
from cdc.ops.status.checks import check_source
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment, deployed
from tests.support.servers import Database, OwnStack
from tests.support.standby import STANDBY_SLOT, Standby
from tests.support.topic_audit import audit
from tests.support.waiting import eventually

TABLE = "public.items"


def both(*servers: PostgresServer) -> str:
    """Where the primary is, whichever of the servers that is."""
    ports = ",".join(str(server.port) for server in servers)
    hosts = ",".join("127.0.0.1" for _ in servers)
    return f"host={hosts} port={ports} dbname=postgres user=postgres target_session_attrs=read-write connect_timeout=5"


@contextmanager
def replicated(
    own_stack: OwnStack, kafka: Kafka, directory: Path, major: PostgresMajor
) -> Iterator[tuple[Deployment, PostgresServer, Standby]]:
    """A bridge that knows both servers, not started yet."""
    primary = own_stack.postgres(major)
    source = Database("postgres", primary.dsn())
    source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 200) i")
    with (
        Standby.of(primary) as standby,
        deployed(source, kafka.bootstrap, source, directory, kind=CdcProcess) as deployment,
    ):
        if major >= 17:
            source.execute(f"ALTER SYSTEM SET synchronized_standby_slots = '{STANDBY_SLOT}'")
            source.execute("SELECT pg_reload_conf()")
        deployment.settings["source"]["dsn"] = both(standby, primary)
        deployment.write()
        yield deployment, primary, standby


class Load:
    """Transactions one after another until the server is gone; ``committed`` counts those that it confirmed."""

    def __init__(self, source: Database) -> None:
        self.committed = 0
        self._source = source
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._source.connect() as connection:
                while True:
                    n = self.committed + 1
                    connection.execute(
                        "WITH gone AS (DELETE FROM items WHERE id = %(n)s - 150)"
                        " INSERT INTO items VALUES (1000 + %(n)s, %(n)s)",
                        {"n": n},
                    )
                    connection.execute("UPDATE items SET n = %s WHERE id %% 10 = 0", (n,))
                    self.committed = n
        except psycopg.OperationalError:
            return


def test_a_failover_slot_goes_on_with_nothing_lost_or_rewound(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path
) -> None:
    with replicated(own_stack, kafka, tmp_path, 18) as (deployment, primary, standby):
        assert [each.text for each in failover(deployment, "WARN")] == []
        deployment.start_bridge()
        deployment.wait_backfilled(TABLE)
        with Load(deployment.source) as load:
            standby.wait_slot_synchronised(deployment.slot(), primary)
            enough = load.committed + 50
            eventually(lambda: load.committed > enough)
            primary.kill()
        standby.promote()
        deployment.source = Database("postgres", standby.dsn())
        deployment.source.execute("UPDATE items SET n = -1 WHERE id <= 20")
        deployment.assert_published(TABLE)
        assert audit(deployment.records(TABLE)) == []
        progress = deployment.progress()
        assert progress is not None
        assert progress.source.timeline == 2
        assert {each.cause for each in deployment.backfills().values()} == {"initial"}, "no gap, no backfill"
        deployment.bridge.stop()


def test_what_is_not_set_up_for_a_failover_is_said_beforehand(own_stack: OwnStack) -> None:
    primary = own_stack.postgres(18)
    source = Database("postgres", primary.dsn())
    with source.connect() as sql:
        assert check_failover(failover_facts(sql, "cdc_x"), "cdc_x") == [], "no standby, nothing to say"
        with Standby.of(primary, {"sync_replication_slots": "off"}) as standby:
            sql.execute("SELECT pg_create_logical_replication_slot('cdc_x', 'pgoutput')")
            # The primary shows a standby once it streams, which may be after it answers
            flag, copies, awaited = eventually(lambda: check_failover(failover_facts(sql, "cdc_x"), "cdc_x"))
            assert "slot cdc_x is not copied to standby, because it was made without failover" in flag.text
            assert "no standby copies slots" in copies.text
            assert "changes are published before standby has them" in awaited.text
            with psycopg.connect(f"{primary.dsn()}?replication=database", autocommit=True) as walsender:
                walsender.execute(flag.remedy.partition("-c '")[2].removesuffix("'").encode())
            with psycopg.connect(standby.dsn(), autocommit=True) as there:
                _run(there, copies.remedy.partition(": ")[2])
            _run(sql, awaited.remedy)
            eventually(lambda: [each.level for each in check_failover(failover_facts(sql, "cdc_x"), "cdc_x")] == ["OK"])


def _run(sql: psycopg.Connection[Any], commands: str) -> None:
    for command in filter(None, map(str.strip, commands.split(";"))):
        sql.execute(command.encode())


def failover(deployment: Deployment, level: str) -> list[Finding]:
    """What ``cdc check`` says of a failover."""
    found, _ = check_source(load(deployment.config, {}))
    return [each for each in found if each.subject == "failover" and each.level == level]


def test_below_17_the_slot_stays_behind_and_a_backfill_heals_it(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path
) -> None:
    with replicated(own_stack, kafka, tmp_path, 16) as (deployment, primary, standby):
        (warning,) = failover(deployment, "WARN")
        assert f"{STANDBY_SLOT} may take over without slot" in warning.text
        assert "source.on_gap: rebackfill" in warning.remedy
        deployment.start_bridge()
        deployment.wait_backfilled(TABLE)
        deployment.wait_published()
        standby.wait_replayed(primary)
        primary.kill()
        standby.promote()
        said = deployment.bridge.refusal(GapError.exit_code)
        assert f"replication slot '{deployment.slot()}' is gone" in said
        assert "the server was promoted (timeline 1 → 2), and its slots did not follow" in said
        assert "CDC_SOURCE__ON_GAP=rebackfill cdc run" in said
        deployment.source = Database("postgres", standby.dsn())
        deployment.source.execute("DELETE FROM items WHERE id <= 30; UPDATE items SET n = 7 WHERE id <= 60")
        heal(deployment)
        assert deployment.backfills()[TABLE].swept == 30


def test_a_standby_that_missed_what_is_published(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """Asynchronous replication: the topics are ahead of the new primary, and go back by no position."""
    with replicated(own_stack, kafka, tmp_path, 16) as (deployment, primary, standby):
        deployment.start_bridge()
        deployment.wait_backfilled(TABLE)
        standby.wait_replayed(primary)
        with psycopg.connect(standby.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET primary_conninfo = ''")
            admin.execute("SELECT pg_reload_conf()")
            eventually(lambda: admin.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() == (0,))
        deployment.source.execute("INSERT INTO items SELECT i, 1 FROM generate_series(5001, 6000) i")
        published = deployment.wait_published()
        primary.kill()
        standby.promote()
        said = deployment.bridge.refusal(GapError.exit_code)
        assert "the server is on timeline 2, which left timeline 1 at" in said
        assert "topics hold changes that this server never had" in said
        deployment.source = Database("postgres", standby.dsn())
        assert deployment.now() < published
        deployment.settings["source"]["on_gap"] = "rebackfill"
        deployment.write()
        deployment.bridge.start()
        deployment.bridge.wait_said("the gap cannot be closed yet: the server's WAL ends at")
        assert "SELECT pg_switch_wal();" in deployment.bridge.said()
        deployment.source.execute("INSERT INTO items VALUES (5001, 2); SELECT pg_switch_wal()")  # as the remedy says
        deployment.bridge.wait_said("streaming")
        wait_healed(deployment)
        deployment.bridge.stop()
        assert deployment.backfills()[TABLE].swept == 999


def test_a_server_restored_from_an_older_copy(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    primary = own_stack.postgres(16)
    source = Database("postgres", primary.dsn())
    source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer); INSERT INTO items VALUES (1, 1)")
    with deployed(source, kafka.bootstrap, source, tmp_path, kind=CdcProcess) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled(TABLE)
        deployment.bridge.stop()
        data, copy = primary.directory / "data", primary.directory / "copy"
        primary.stop()
        subprocess.run(["cp", "-a", data, copy], check=True)
        primary.restart()
        deployment.start_bridge()
        source.execute("INSERT INTO items SELECT i, 1 FROM generate_series(2, 1000) i")
        deployment.wait_published()
        deployment.bridge.stop()
        primary.stop()
        shutil.rmtree(data)
        copy.rename(data)
        primary.restart()
        deployment.bridge.start()
        said = deployment.bridge.refusal(GapError.exit_code)
        assert "the server's WAL ends at" in said
        assert "it was restored from an older copy" in said


def heal(deployment: Deployment) -> None:
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    wait_healed(deployment)
    deployment.bridge.stop()


def wait_healed(deployment: Deployment) -> None:
    def healed() -> bool:
        assert not deployment.bridge.ended, deployment.bridge.tail()
        found = deployment.backfills()[TABLE]
        return (found.cause, found.state) == ("gap", "done")

    eventually(healed, 60, deployment.bridge.tail)
    deployment.assert_published(TABLE)
    assert audit(deployment.records(TABLE)) == []
