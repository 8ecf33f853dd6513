"""Which heaps a snapshot reads: those that it sees, locked before it was taken."""

from __future__ import annotations

import psycopg
import pytest

from cdc.contract.jobspec.deployment import PostgresSettings
from cdc.spark.errors import SourceUnreadable
from cdc.spark.source import held_snapshot
from cdc.spark.source.held_snapshot import hold, hold_free
from cdc.spark.source.rows import sizes_of
from tests.support.servers import Database


def settings_of(database: Database) -> PostgresSettings:
    with database.connect() as connection:
        info = connection.info
        return PostgresSettings(host=info.host, port=info.port, database=info.dbname, user=info.user)


def test_partitions_are_those_that_the_snapshot_sees(database: Database) -> None:
    database.execute("CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    settings = settings_of(database)
    with hold(settings, ("public", "part"), 5) as held:
        assert held.heaps == ()
    database.execute("CREATE TABLE low PARTITION OF part FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id)")
    database.execute('CREATE TABLE "Lowest.of" PARTITION OF low FOR VALUES FROM (0) TO (5)')
    database.execute("CREATE TABLE beside (id int PRIMARY KEY)")
    with hold(settings, ("public", "part"), 5) as held:
        assert held.heaps == (("public", "Lowest.of"),)
        database.execute("ALTER TABLE part ATTACH PARTITION beside FOR VALUES FROM (9) TO (20)")
        seen = held.connection.execute("SELECT count(*) FROM pg_inherits WHERE inhrelid = 'public.beside'::regclass")
        assert seen.fetchone() == (0,), "the snapshot is from before"
        with database.connect(options="-c lock_timeout=100") as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute('TRUNCATE "Lowest.of"')
    with hold(settings, ("public", "part"), 5) as held:
        assert held.heaps == (("public", "Lowest.of"), ("public", "beside"))
    database.execute("ALTER TABLE part DETACH PARTITION beside CONCURRENTLY")
    with hold(settings, ("public", "part"), 5) as held:
        assert held.heaps == (("public", "Lowest.of"),)


def test_a_table_that_others_inherit_from_is_itself_alone(database: Database) -> None:
    database.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    database.execute("CREATE TABLE child () INHERITS (parent)")
    with hold(settings_of(database), ("public", "parent"), 5) as held:
        assert held.heaps == (("public", "parent"),)


def test_what_cannot_be_held(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(database)
    with pytest.raises(SourceUnreadable, match="there is no table public"), hold(settings, ("public", "gone"), 5):
        pass
    database.execute("CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (9)")
    # As if the partition came between the locks and the snapshot, each time: only the root is locked.
    monkeypatch.setattr(held_snapshot, "KIND", "SELECT 'r' WHERE %s::text <> %s::text")
    with (
        pytest.raises(SourceUnreadable, match="got a new partition at each of 10 attempts"),
        hold(settings, ("public", "part"), 5),
    ):
        pass


def test_of_several_tables_those_that_can_be_had_at_once(database: Database) -> None:
    database.execute("CREATE TABLE free (id int PRIMARY KEY, note text)")
    database.execute("CREATE TABLE held (id int PRIMARY KEY)")
    database.execute("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("INSERT INTO free SELECT n, 'note' FROM generate_series(1, 1000) n")
    names = [("public", each) for each in ("held", "gone", "free", "parts")]
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE held IN ACCESS EXCLUSIVE MODE")
        with hold_free(settings_of(database), [*names, ("nowhere", "free")]) as held:
            assert held.heaps == (("public", "free"), ("public", "parts"))
            (size,) = sizes_of(held).values()
            assert size > 1000 * 30
            database.execute("INSERT INTO free VALUES (0, 'later')")
            assert held.connection.execute("SELECT count(*) FROM public.free").fetchone() == (1000,)
            with (
                database.connect(options="-c lock_timeout=100") as late,
                pytest.raises(psycopg.errors.LockNotAvailable),
            ):
                late.execute("TRUNCATE free")
