"""What ``cdc`` asks of a replica database, whichever it is: one class of tests, and one fixture for each database.

A new replica database gets a class of its own below, with nothing in it but the fixture ``server``. A server that
people log in to has to pass ``ServerContract``, too.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo

from cdc.base.config import Config
from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.source.slot import identify
from cdc.contract.header import DELETE, UPDATE, HeaderStamp
from cdc.contract.ports import BeginAnew, CutStanding, ReplicaWriter, StoredRecord, TableRejected
from cdc.contract.record import Progress, SchemaColumn, SourceIdentity, TableSchema
from cdc.sink.dialects import open_replica
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaDatabase, ReplicaName, SinkStatus, TableStatus
from tests.support.mariadb_server import MariadbDatabase, MariadbServer, fresh_mariadb
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.topic_writer import SOURCE
from tests.support.waiting import eventually

ITEMS = TableSchema(
    "00000000000000aa", "public", "items", "x.public.items", ("id",),
    (SchemaColumn("id", "int4"), SchemaColumn("name", "text")),
)  # fmt: skip
ORDERS = replace(ITEMS, fingerprint="00000000000000bb", name="orders", topic="x.public.orders")
TRUE = CutStanding(is_true=True, loading=(), outside=(), joining=(), caught_up_at=1_700_000_000.0)
NOTHING_YET = SinkStatus(None, None, 0, running=False, tables=())


class Replica(Protocol):
    """A replica database under test."""

    @property
    def schema(self) -> str:
        """The schema of its replica tables."""

    def config(self) -> Config:
        """Of a sink that mirrors into it."""

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """Of a replica table, by its first column."""

    def execute(self, statement: str) -> None:
        """Run SQL as a person would."""

    def refuse_long_names(self) -> None:
        """From now on, table ``items`` takes no name of more than three characters."""


class Server(Replica, Protocol):
    """A replica database on a server that people log in to."""

    def config(self, role: str = "") -> Config:
        """Of a sink that mirrors into it; as the owner of everything, or as a role."""

    def administer(self, lines: Sequence[str]) -> None:
        """Run what an administrator was told to."""

    def identity(self) -> SourceIdentity:
        """Of the database, were it a source."""


def config_of(sink: dict[str, str]) -> Config:
    source, kafka = {"dsn": "host=nowhere"}, {"bootstrap": "nowhere:9092"}
    return Config.model_validate({"name": "shop", "source": source, "kafka": kafka, "sink": sink})


def record(number: int, name: str | None, offset: int, schema: TableSchema = ITEMS) -> StoredRecord:
    header = HeaderStamp(LSN(100), 7, 0).header(DELETE if name is None else UPDATE, offset, schema.fingerprint)
    value = None if name is None else b'{"id":%d,"name":"%s"}' % (number, name.encode())
    return StoredRecord(schema.topic, 0, offset, b'{"id":%d}' % number, value, header)


def progress(lsn: int) -> Progress:
    return Progress(LSN(lsn), None, 1_700_000_000_000_000, SOURCE)


@contextmanager
def session(
    database: ReplicaDatabase, *schemas: TableSchema, resumes: bool = False, is_asked: bool = False
) -> Iterator[ReplicaWriter[Any]]:
    """A sink's session, taken as far as its first record."""
    database.upgrade()
    with closing(database.writer()) as writer:
        assert writer.lock()
        writer.restore()
        writer.meet_source(SOURCE)
        writer.learn(schemas)
        for topic in dict.fromkeys(each.topic for each in schemas):
            writer.begin(
                topic,
                f"id of {topic}",
                ends=(0,),
                resumes=resumes,
                why_anew="",
                is_asked=is_asked,
                now=time.time(),
            )
        yield writer


def apply(writer: ReplicaWriter[Any], lsn: int, *records: StoredRecord, standing: CutStanding = TRUE) -> None:
    topics = dict.fromkeys(each.topic for each in records)
    writer.write([writer.prepare(topic, [each for each in records if each.topic == topic]) for topic in topics])
    writer.commit(progress(lsn), {(each.topic, 0): each.offset + 1 for each in records}, standing)


class ReplicaContract:
    """Of a ``ReplicaDatabase``."""

    def test_before_the_first_start_there_is_nothing_to_tell(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        assert database.status() == NOTHING_YET
        database.upgrade()
        database.upgrade()
        assert database.status() == NOTHING_YET

    def test_a_cut_is_there_with_its_rows_or_not_at_all(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            writer.write([writer.prepare(ITEMS.topic, [record(1, "a", 0), record(2, "b", 1), record(1, "c", 2)])])
            assert replica.rows("items") == []
            writer.commit(progress(100), {(ITEMS.topic, 0): 3}, TRUE)
            assert replica.rows("items") == [(1, "c"), (2, "b")]
            writer.write([writer.prepare(ITEMS.topic, [record(2, None, 3), record(3, "d", 4)])])
        assert replica.rows("items") == [(1, "c"), (2, "b")]

    def test_the_next_session_goes_on_where_the_last_one_ended(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
        with closing(database.writer()) as writer:
            restored = writer.restore()
            assert (restored.progress, restored.offsets, restored.topic_ids, restored.caught_up_at) == (
                progress(100),
                {(ITEMS.topic, 0): 2},
                {ITEMS.topic: f"id of {ITEMS.topic}"},
                TRUE.caught_up_at,
            )
        with session(database, ITEMS, resumes=True) as writer:
            apply(writer, 200, record(1, None, 2), record(3, "c", 3))
        assert replica.rows("items") == [(2, "b"), (3, "c")]

    def test_status_tells_the_cut_and_each_table_and_who_runs(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS, ORDERS) as writer:
            apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
            tables = (
                TableStatus(ITEMS.topic, f"{replica.schema}.items", "exact", 2, ""),
                TableStatus(ORDERS.topic, f"{replica.schema}.orders", "exact", 0, ""),
            )
            seen = database.status()
            ages = [seen.applied_s, seen.level_s]
            assert all(each is not None and each >= 0 for each in ages), ages
            ageless = replace(seen, applied_s=None, level_s=None, still_s=None)
            assert ageless == SinkStatus(LSN(100), LSN(100), 1_700_000_000_000_000, True, tables)

        def ended() -> bool:
            seen = database.status()
            return not seen.running and seen.still_s is None and seen.tables == tables and seen.lsn == LSN(100)

        eventually(ended)  # the server notices a little later

    def test_one_sink_of_a_name_writes_at_a_time(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        database.upgrade()
        with closing(database.writer()) as second:
            with closing(database.writer()) as first:
                assert (first.lock(), second.lock()) == (True, False)
            assert eventually(second.lock)

    def test_a_table_grows_with_its_definition(self, replica: Replica) -> None:
        wider = replace(ITEMS, fingerprint="00000000000000cc", columns=(*ITEMS.columns, SchemaColumn("size", "int8")))
        with session(open_replica(replica.config(), application_name="test"), ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
            assert writer.learn([wider]) == frozenset()
            apply(writer, 200, record(2, "b", 1)._replace(value=b'{"id":2,"name":"b","size":9007199254740993}'))
        assert replica.rows("items") == [(1, "a", None), (2, "b", 9007199254740993)]

    def test_a_rebuild_deletes_what_the_topic_does_not_have_and_goes_on_after_a_restart(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
        with session(database, ITEMS, is_asked=True) as writer:
            assert "the operator asked" in database.status().tables[0].reason
            apply(writer, 200, record(3, "c", 0), standing=TRUE._replace(outside=[ITEMS.topic]))
        assert replica.rows("items") == [(1, "a"), (2, "b"), (3, "c")]
        with session(database, ITEMS, resumes=True) as writer:
            assert database.status().tables[0].state == "rebuilding"
            apply(writer, 300, record(1, "z", 1), standing=TRUE._replace(joining=[ITEMS.topic]))
        assert replica.rows("items") == [(1, "z"), (3, "c")]
        assert database.status().tables == (TableStatus(ITEMS.topic, f"{replica.schema}.items", "exact", 4, ""),)

    def test_a_table_with_another_key_begins_anew(self, replica: Replica) -> None:
        rekeyed = replace(ITEMS, fingerprint="00000000000000cc", key=("name",))
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
            assert writer.learn([rekeyed]) == {ITEMS.topic}
            new = [record(5, "a", 2, rekeyed), record(5, "b", 3, rekeyed)]
            keyed = [each._replace(key=key) for each, key in zip(new, (b'{"name":"a"}', b'{"name":"b"}'), strict=True)]
            apply(writer, 200, *keyed, record(1, None, 4))  # the last one's key is a former one
        assert sorted(replica.rows("items")) == [(5, "a"), (5, "b")]

    def test_a_rebuild_that_was_cut_goes_on_with_another_key(self, replica: Replica) -> None:
        """The keys that it had met are of the former key."""
        rekeyed = replace(ITEMS, fingerprint="00000000000000cc", key=("name",))
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
        with session(database, ITEMS, is_asked=True) as writer:
            apply(writer, 200, record(3, "c", 0), standing=TRUE._replace(outside=[ITEMS.topic]))
        with session(database, ITEMS, rekeyed, resumes=True) as writer:
            new = record(5, "d", 1, rekeyed)._replace(key=b'{"name":"d"}')
            apply(writer, 300, new, standing=TRUE._replace(joining=[ITEMS.topic]))
        assert replica.rows("items") == [(5, "d")]
        assert database.status().tables[0].state == "exact"

    def test_rows_of_somebody_else_are_left_alone_until_the_operator_gives_them_away(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
        with session(database, ITEMS) as writer:  # as if its offsets had never been stored
            assert not writer.active()
        (table,) = database.status().tables
        assert (table.state, "cdc sink --rebuild public.items" in table.reason) == ("stopped", True)
        with session(database, ITEMS, is_asked=True) as writer:
            apply(writer, 200, record(2, "b", 0), standing=TRUE._replace(joining=[ITEMS.topic]))
        assert replica.rows("items") == [(2, "b")]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ("DROP TABLE {}.items", "the replica table was gone"),
            ("ALTER TABLE {}.items DROP COLUMN name", "a column of the replica table was gone"),
        ],
    )
    def test_what_a_person_drops_is_filled_again(self, replica: Replica, change: str, reason: str) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
        replica.execute(change.format(replica.schema))
        with session(database, ITEMS, resumes=True) as writer:
            assert database.status().tables[0].reason == reason
            apply(writer, 200, record(1, "a", 0), standing=TRUE._replace(joining=[ITEMS.topic]))
        assert replica.rows("items") == [(1, "a")]

    def test_a_table_dropped_under_the_running_sink_ends_the_session(self, replica: Replica) -> None:
        with session(open_replica(replica.config(), application_name="test"), ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
            replica.execute(f"DROP TABLE {replica.schema}.items")
            with pytest.raises((ReplicaUnavailable, TableRejected)):
                apply(writer, 200, record(2, "b", 1))

    def test_a_column_that_changes_values_stops_its_table_with_what_mends_it(self, replica: Replica) -> None:
        text = replace(ITEMS, fingerprint="00000000000000cc", columns=(ITEMS.columns[0], SchemaColumn("name", "int8")))
        database = open_replica(replica.config(), application_name="test")
        with session(database, text) as writer:
            apply(writer, 100, record(1, "a", 0, text)._replace(value=b'{"id":1,"name":5}'))
            writer.learn([ITEMS])
            assert not writer.active()
        told = database.status().tables[0].reason
        assert "which it cannot hold unchanged" in told
        replica.execute("ALTER TABLE" + told.rpartition("ALTER TABLE")[2].partition(";")[0])
        with session(database, text, ITEMS, resumes=True) as writer:
            apply(writer, 200, record(1, "a", 1), standing=TRUE._replace(joining=[ITEMS.topic]))
        assert replica.rows("items") == [(1, "a")]

    def test_the_record_that_is_refused_is_named_and_its_table_stops_alone(self, replica: Replica) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS, ORDERS) as writer:
            apply(writer, 100, record(1, "a", 0), record(1, "a", 0, ORDERS))
            replica.refuse_long_names()
            bad = [record(2, "b", 1), record(3, "long name", 2), record(4, "d", 3)]
            with pytest.raises(RecordRejected) as refused:
                apply(writer, 200, *bad, record(2, "b", 1, ORDERS))
            assert refused.value.record == bad[1]
            writer.stop_table(refused.value.topic, refused.value.reason, refused.value.record)
        assert replica.rows("items") == [(1, "a")]
        items, orders = database.status().tables
        assert (items.state, orders.state) == ("stopped", "exact")
        assert refused.value.reason in items.reason
        database = open_replica(replica.config(), application_name="test")
        with closing(database.writer([ITEMS.topic])) as writer:
            writer.restore()
            writer.learn([ITEMS, ORDERS])
            assert set(writer.active()) == {ORDERS.topic}


class TransactionalDdlContract:
    """Of a ``ReplicaDatabase`` in which a change of a table is part of the open transaction."""

    def test_a_definition_may_change_within_a_transaction(self, replica: Replica) -> None:
        wider = replace(ITEMS, fingerprint="00000000000000cc", columns=(*ITEMS.columns, SchemaColumn("size", "int8")))
        rekeyed = replace(wider, fingerprint="00000000000000dd", key=("name",))
        with session(open_replica(replica.config(), application_name="test"), ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
            writer.write([writer.prepare(ITEMS.topic, [record(2, "b", 1), record(1, "z", 2)])])
            assert writer.learn([wider]) == frozenset()
            sized = record(3, "c", 3)._replace(value=b'{"id":3,"name":"c","size":5}')
            writer.write([writer.prepare(ITEMS.topic, [sized, record(2, None, 4)])])
            writer.commit(progress(200), {(ITEMS.topic, 0): 5}, TRUE)
            assert replica.rows("items") == [(1, "z", None), (3, "c", 5)]
            writer.write([writer.prepare(ITEMS.topic, [record(4, "d", 5)])])
            assert writer.learn([rekeyed]) == {ITEMS.topic}
            new = record(9, "d", 6, rekeyed)._replace(key=b'{"name":"d"}')
            writer.write([writer.prepare(ITEMS.topic, [new])])
            writer.commit(progress(300), {(ITEMS.topic, 0): 7}, TRUE)
        assert replica.rows("items") == [(9, "d", None)]


class ServerContract:
    """Of a ``ReplicaDatabase`` on a server with sessions and roles, which may be the source's, too."""

    def test_status_tells_how_long_the_session_is_idle(self, replica: Server) -> None:
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
            still_s = database.status().still_s
            assert still_s is not None
            assert still_s >= 0

    def test_a_role_with_the_printed_grants_lacks_nothing(self, replica: Server) -> None:
        role = unique("sink_")
        database = open_replica(replica.config(role), application_name="test")
        replica.administer([*database.grants(["mirror"])])
        tables = [ReplicaName("mirror", "items")]
        found = database.inspect(tables, None)
        assert (found.schemas, found.lacks, found.is_source) == (("cdc", "mirror"), (), False)
        assert role in found.address
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
        assert replica.rows("items") == [(1, "a")]
        elsewhere = database.inspect([*tables, ReplicaName("elsewhere", "items")], None)
        assert [(each.subject, bool(each.text)) for each in elsewhere.lacks] == [("schema elsewhere", True)]
        replica.administer([each.remedy for each in elsewhere.lacks])
        assert database.inspect([*tables, ReplicaName("elsewhere", "items")], None).lacks == ()

    def test_the_source_itself_is_recognised(self, replica: Server) -> None:
        database = open_replica(replica.config(), application_name="test")
        here = replica.identity()
        assert [
            database.inspect([], each).is_source
            for each in (None, here, replace(here, timeline=here.timeline + 1), replace(here, database_oid=1), SOURCE)
        ] == [False, True, True, False, False]

    def test_who_cannot_connect_is_told_apart_from_who_may_not(self, replica: Server) -> None:
        stranger = open_replica(replica.config("nobody_of_this_name"), application_name="test")
        with pytest.raises(ReplicaRefused, match="nobody_of_this_name"):
            stranger.status()
        config = replica.config()
        assert config.sink is not None
        away = config.model_copy(update={"sink": config.sink.model_validate({"dsn": "host=127.0.0.1 port=1 user=x"})})
        database = open_replica(away, application_name="test")
        for ask in (database.status, database.upgrade, database.writer):
            with pytest.raises(ReplicaUnavailable, match=r"127\.0\.0\.1:1/"):
                ask()


@dataclass
class PostgresServer:
    """A database on PostgreSQL."""

    database: Database
    schema: str = "mirror"
    roles: set[str] = field(default_factory=set)

    def config(self, role: str = "") -> Config:
        if role.startswith("sink_"):
            self.roles.add(role)
        dsn = make_conninfo(self.database.dsn, **({"user": role, "password": "secret"} if role else {}))
        return config_of({"dsn": dsn, "schema": self.schema})

    def administer(self, lines: Sequence[str]) -> None:
        self.database.execute("\n".join(lines))
        for role in self.roles:
            self.database.execute(f"ALTER ROLE {role} PASSWORD 'secret'")

    def rows(self, table: str) -> list[tuple[object, ...]]:
        return self.database.execute(f"SELECT * FROM mirror.{table} ORDER BY 1")

    def execute(self, statement: str) -> None:
        self.database.execute(statement)

    def identity(self) -> SourceIdentity:
        with self.database.connect() as connection:
            return identify(connection)

    def refuse_long_names(self) -> None:
        self.database.execute("ALTER TABLE mirror.items ADD CHECK (length(name) <= 3)")


class TestPostgres(ReplicaContract, TransactionalDdlContract, ServerContract):
    @pytest.fixture
    def replica(self, database: Database) -> Iterator[PostgresServer]:
        server = PostgresServer(database)
        yield server
        for role in server.roles:
            database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@dataclass
class SqliteFile:
    """A file of SQLite."""

    path: Path
    schema: str = "main"

    def config(self) -> Config:
        return config_of({"url": f"sqlite:///{self.path}"})

    def rows(self, table: str) -> list[tuple[object, ...]]:
        return self._rows(f"SELECT * FROM {table} ORDER BY 1")

    def execute(self, statement: str) -> None:
        self._rows(statement)

    def refuse_long_names(self) -> None:
        self.execute(
            "CREATE TRIGGER short BEFORE INSERT ON items WHEN length(NEW.name) > 3"
            " BEGIN SELECT RAISE(ABORT, 'the name is too long'); END"
        )

    def _rows(self, statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()


@dataclass
class DuckdbFile:
    """A file of DuckDB, which this process shares with the sink under test."""

    path: Path
    schema: str = "mirror"

    def config(self) -> Config:
        return config_of({"url": f"duckdb:///{self.path}", "schema": self.schema})

    def rows(self, table: str) -> list[tuple[object, ...]]:
        with self._connected() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM mirror.{table} ORDER BY 1")]

    def execute(self, statement: str) -> None:
        with self._connected() as connection:
            connection.exec_driver_sql(statement)
            connection.commit()

    def refuse_long_names(self) -> None:
        self.execute(
            "CREATE TABLE mirror.short (id INTEGER PRIMARY KEY, name VARCHAR CHECK (length(name) <= 3));"
            "INSERT INTO mirror.short FROM mirror.items;"
            "DROP TABLE mirror.items; ALTER TABLE mirror.short RENAME TO items"
        )

    def _connected(self) -> sa.Connection:
        return sa.create_engine(f"duckdb:///{self.path}", poolclass=sa.pool.NullPool).connect()


@dataclass
class MariadbReplica:
    """A database of MariaDB."""

    database: MariadbDatabase

    @property
    def schema(self) -> str:
        return self.database.name

    def config(self) -> Config:
        return config_of({"url": self.database.url})

    def rows(self, table: str) -> list[tuple[object, ...]]:
        return self.database.execute(f"SELECT * FROM {table} ORDER BY 1")

    def execute(self, statement: str) -> None:
        self.database.execute(statement)

    def refuse_long_names(self) -> None:
        self.execute("ALTER TABLE items ADD CHECK (char_length(name) <= 3)")


class TestMariadb(ReplicaContract):
    @pytest.fixture
    def replica(self, mariadb: MariadbServer) -> Iterator[MariadbReplica]:
        with fresh_mariadb(mariadb) as database:
            yield MariadbReplica(database)

    def test_a_definition_that_changes_within_a_transaction_ends_the_session(self, replica: Replica) -> None:
        """MariaDB commits at each change of a table, which would show half a transaction."""
        wider = replace(ITEMS, fingerprint="00000000000000cc", columns=(*ITEMS.columns, SchemaColumn("size", "int8")))
        database = open_replica(replica.config(), application_name="test")
        with session(database, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
            writer.write([writer.prepare(ITEMS.topic, [record(2, "b", 1), record(1, "z", 2)])])
            assert writer.learn([ITEMS]) == frozenset()
            with pytest.raises(BeginAnew):
                writer.learn([wider])
        assert replica.rows("items") == [(1, "a")]
        with session(database, ITEMS, wider, resumes=True) as writer:
            sized = record(3, "c", 3)._replace(value=b'{"id":3,"name":"c","size":5}')
            writer.write([writer.prepare(ITEMS.topic, [record(2, "b", 1), record(1, "z", 2)])])
            writer.write([writer.prepare(ITEMS.topic, [sized, record(2, None, 4)])])
            writer.commit(progress(200), {(ITEMS.topic, 0): 5}, TRUE)
        assert replica.rows("items") == [(1, "z", None), (3, "c", 5)]


class TestSqlite(ReplicaContract, TransactionalDdlContract):
    @pytest.fixture
    def replica(self, tmp_path: Path) -> SqliteFile:
        return SqliteFile(tmp_path / "shop.db")


class TestDuckdb(ReplicaContract, TransactionalDdlContract):
    @pytest.fixture
    def replica(self, tmp_path: Path) -> DuckdbFile:
        return DuckdbFile(tmp_path / "shop.duckdb")
