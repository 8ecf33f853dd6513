"""What MariaDB does not hold, tells apart or allow, and what the sink says about it: nothing is cut, no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from pydantic import SecretStr

from cdc.base.config import Config
from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.contract.ports import StoredRecord, TableRejected
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.dialects import open_replica
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaDatabase
from tests.integration.sink.test_databases import ITEMS, TRUE, MariadbReplica, apply, progress, record, session
from tests.support.certificates import Authority
from tests.support.mariadb_server import MariadbServer, fresh_mariadb
from tests.support.names import unique
from tests.support.waiting import eventually

TEXT_KEY = replace(ITEMS, columns=(SchemaColumn("id", "text"), SchemaColumn("name", "text")))


@pytest.fixture
def shop(mariadb: MariadbServer) -> Iterator[MariadbReplica]:
    with fresh_mariadb(mariadb) as database:
        yield MariadbReplica(database)


@pytest.fixture(scope="module")
def careless() -> Iterator[MariadbServer]:
    """A server whose settings let values be cut."""
    settings = {"sql-mode": "", "max-allowed-packet": "1M", "character-set-server": "latin1", "innodb-strict-mode": "0"}
    with MariadbServer.open(settings) as server:
        yield server


def opened(replica: MariadbReplica) -> ReplicaDatabase:
    return open_replica(replica.config(), application_name="test")


def texts(key: str, name: str | None, offset: int) -> StoredRecord:
    value = orjson.dumps({"id": key, "name": name})
    return record(1, "", offset)._replace(key=orjson.dumps({"id": key}), value=value)


def user_of(config: Config, user: str, password: str = "") -> Config:
    assert config.sink is not None
    url = (config.sink.url or "").replace("root@", f"{user}@")
    secret = SecretStr(password) if password else None
    return config.model_copy(update={"sink": config.sink.model_copy(update={"url": url, "password": secret})})


@pytest.mark.parametrize(
    ("sql_type", "text"),
    [
        ("numeric(12,3)", "NaN"),
        ("float8", "NaN"),
        ("float4", "-Infinity"),
        ("date", "infinity"),
        ("date", "10000-01-01"),
        ("timestamp", "0044-03-15 12:00:00 BC"),
        ("timestamptz", "infinity"),
    ],
)
def test_a_value_that_its_type_does_not_hold_stops_the_table_until_the_column_is_text(
    shop: MariadbReplica, sql_type: str, text: str
) -> None:
    schema = replace(ITEMS, columns=(ITEMS.columns[0], SchemaColumn("name", sql_type)))
    bad = record(2, "", 1)._replace(value=orjson.dumps({"id": 2, "name": text}))
    with session(opened(shop), schema) as writer:
        with pytest.raises(RecordRejected, match="make the replica's column LONGTEXT") as refused:
            apply(writer, 100, bad)
        writer.stop_table(refused.value.topic, refused.value.reason_and_remedy, refused.value.record)
    assert opened(shop).status().tables[0].state == "stopped"
    shop.execute("ALTER TABLE items MODIFY name LONGTEXT")
    with session(opened(shop), schema, is_asked=True) as writer:
        apply(writer, 100, bad, standing=TRUE._replace(joining=[ITEMS.topic]))
    assert shop.rows("items") == [(2, text)]


def test_texts_that_other_collations_call_equal_are_different_keys(shop: MariadbReplica) -> None:
    keys = ["a", "A", "a ", "ä", "a\u0308", "ß", "ss", "'", "\\", "%s", "\n", ""]
    with session(opened(shop), TEXT_KEY) as writer:
        apply(writer, 100, *[texts(key, key, number) for number, key in enumerate(keys)])
        assert {key for key, _ in shop.rows("items")} == set(keys)
        gone = texts("a ", None, 99)._replace(value=None)
        apply(writer, 200, gone)
    assert sorted(shop.rows("items")) == sorted((key, key) for key in keys if key != "a ")


def test_a_key_of_ones_own_that_makes_two_keys_one_stops_its_table(shop: MariadbReplica) -> None:
    opened(shop).upgrade()
    shop.execute("CREATE TABLE items (id VARCHAR(100) COLLATE utf8mb4_bin PRIMARY KEY, name LONGTEXT)")
    with session(opened(shop), TEXT_KEY) as writer:
        assert not writer.active()
    told = opened(shop).status().tables[0].reason
    assert "that tells all different values apart" in told
    shop.execute(told.partition("remedy: ")[2].partition(";")[0])
    with session(opened(shop), TEXT_KEY) as writer:
        assert set(writer.active()) == {ITEMS.topic}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            "(id INT PRIMARY KEY, name VARCHAR(99) CHARACTER SET utf8mb4 UNIQUE)",
            "several unique indexes (PRIMARY, name)",
        ),
        ("(id INT PRIMARY KEY, name LONGTEXT CHARACTER SET utf8mb4) ENGINE = MyISAM", "is a table of MyISAM"),
    ],
)
def test_a_table_of_ones_own_that_would_lose_rows_stops_until_it_is_mended(
    shop: MariadbReplica, table: str, reason: str
) -> None:
    opened(shop).upgrade()
    shop.execute(f"CREATE TABLE items {table}")
    with session(opened(shop), ITEMS) as writer:
        assert not writer.active()
    told = opened(shop).status().tables[0].reason
    assert reason in told
    shop.execute(told.partition("remedy: ")[2].rpartition(": ")[2].partition(";")[0])
    with session(opened(shop), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0), record(2, "a", 1))
    assert shop.rows("items") == [(1, "a"), (2, "a")]


def test_a_table_of_ones_own_is_used_as_it_is_and_cuts_nothing(shop: MariadbReplica) -> None:
    opened(shop).upgrade()
    shop.execute(
        "CREATE TABLE items (Name VARCHAR(3) CHARACTER SET utf8mb4, ID BIGINT AUTO_INCREMENT PRIMARY KEY,"
        " mine INT DEFAULT 7, twice INT AS (id * 2))"
    )
    with session(opened(shop), ITEMS) as writer:
        apply(writer, 100, record(0, "abc", 0), record(1, "a", 1))
        with pytest.raises(RecordRejected, match="a text of 5 characters is longer than the column, which holds 3"):
            apply(writer, 200, record(2, "abc  ", 2))
    assert sorted(shop.rows("items")) == [("a", 1, 7, 2), ("abc", 0, 7, 0)]


def test_a_key_that_an_index_does_not_hold_is_named(shop: MariadbReplica) -> None:
    with session(opened(shop), TEXT_KEY) as writer:
        apply(writer, 100, texts("𝔘" * 768, "fits", 0))
        with pytest.raises(
            RecordRejected, match=r"column 'id': a text of 769 characters .* source\.exclude"
        ) as refused:
            apply(writer, 200, texts("x" * 769, "", 1))
    assert refused.value.record is not None


def test_settings_of_the_server_cut_nothing(careless: MariadbServer) -> None:
    with fresh_mariadb(careless, "latin1") as database:
        shop = MariadbReplica(database)
        small = replace(ITEMS, columns=(ITEMS.columns[0], SchemaColumn("name", "int2")))
        with session(opened(shop), ITEMS) as writer:
            apply(writer, 100, record(1, "𝔘 — ä", 0), record(2, "x" * 900_000, 1), record(3, "y" * 900_000, 2))
            too_large = record(5, "z" * 1_100_000, 4)
            with pytest.raises(RecordRejected, match="raise its max_allowed_packet") as refused:
                apply(writer, 200, record(4, "a", 3), too_large, record(6, "b", 5))
            assert refused.value.record == too_large
        assert [(key, len(str(name))) for key, name in shop.rows("items")] == [(1, 5), (2, 900_000), (3, 900_000)]
        shop.execute("DROP TABLE items")
        with session(opened(shop), small, resumes=True) as writer, pytest.raises(TableRejected, match="Out of range"):
            apply(writer, 300, record(1, "", 0)._replace(value=b'{"id":1,"name":32768}'))


def test_who_may_not_is_told_what_lets_them(shop: MariadbReplica) -> None:
    role = unique("sink_")
    with pytest.raises(ReplicaRefused, match=f"Access denied for user '{role}'.*\n.*CDC_SINK__PASSWORD"):
        open_replica(user_of(shop.config(), role), application_name="test").status()
    shop.execute(f"CREATE USER {role}@'127.0.0.1' IDENTIFIED BY 'se''cret'")
    try:
        limited = open_replica(user_of(shop.config(), role, "se'cret"), application_name="test")
        with pytest.raises(ReplicaRefused, match=f"GRANT SELECT, .* ON `{shop.schema}`"):
            limited.upgrade()
        shop.execute(f"GRANT SELECT, INSERT ON {shop.schema}.* TO {role}@'127.0.0.1'")
        [lack] = limited.inspect([], None).lacks
        assert lack.text.endswith("lacks UPDATE, DELETE, CREATE, ALTER, DROP")
        with pytest.raises(ReplicaRefused, match="CREATE command denied"):
            limited.upgrade()
        shop.execute(lack.remedy)
        assert limited.inspect([], None).lacks == ()
        with session(limited, ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
        assert shop.rows("items") == [(1, "a")]
    finally:
        shop.execute(f"DROP USER {role}@'127.0.0.1'")


def test_a_database_that_is_not_there_is_named(shop: MariadbReplica) -> None:
    config = shop.config()
    assert config.sink is not None
    nowhere = config.sink.model_copy(update={"url": f"{config.sink.url}_gone"})
    with pytest.raises(ReplicaRefused, match=f"CREATE DATABASE `{shop.schema}_gone`"):
        open_replica(config.model_copy(update={"sink": nowhere}), application_name="test").upgrade()


def test_a_server_that_goes_away_is_waited_for(mariadb_of_ones_own: MariadbServer) -> None:
    with fresh_mariadb(mariadb_of_ones_own) as database:
        shop = MariadbReplica(database)
        with session(opened(shop), ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
            writer.write([writer.prepare(ITEMS.topic, [record(2, "b", 1)])])
            mariadb_of_ones_own.kill()
            with pytest.raises(ReplicaUnavailable):
                writer.commit(progress(200), {(ITEMS.topic, 0): 2}, TRUE)
        with pytest.raises(ReplicaUnavailable, match=r"Can't connect"):
            opened(shop).upgrade()
        mariadb_of_ones_own.restart()
        with session(opened(shop), ITEMS, resumes=True) as writer:
            assert shop.rows("items") == [(1, "a")]
            apply(writer, 200, record(2, "b", 1))
        assert shop.rows("items") == [(1, "a"), (2, "b")]


@pytest.fixture
def mariadb_of_ones_own() -> Iterator[MariadbServer]:
    with MariadbServer.open() as server:
        yield server


def test_a_sink_that_has_lost_its_session_cannot_write_beside_the_next_one(shop: MariadbReplica) -> None:
    database = opened(shop)
    with session(database, ITEMS) as first:
        apply(first, 100, record(1, "a", 0))
        first.write([first.prepare(ITEMS.topic, [record(2, "b", 1)])])
        for (number,) in shop.database.execute(
            f"SELECT id FROM information_schema.processlist WHERE db = '{shop.schema}' AND id <> CONNECTION_ID()"
        ):
            shop.execute(f"KILL {number}")
        with closing(database.writer()) as second:
            assert eventually(second.lock)
            second.restore()
            with pytest.raises(ReplicaUnavailable):
                first.commit(progress(200), {(ITEMS.topic, 0): 2}, TRUE)
            with pytest.raises(ReplicaUnavailable, match="another sink of this name has taken over"):
                first.stop_table(ITEMS.topic, "a record", None)
    assert shop.rows("items") == [(1, "a")]
    assert database.status().tables[0].state == "exact"


def test_a_sink_whose_lock_another_one_took_cannot_commit(shop: MariadbReplica) -> None:
    """As after a failover, whose new server knows no lock of the former one."""
    with session(opened(shop), ITEMS) as writer:
        writer.write([writer.prepare(ITEMS.topic, [record(2, "b", 1)])])
        shop.execute("UPDATE cdc_owner SET number = number + 1")
        with pytest.raises(ReplicaUnavailable, match="another sink of this name has taken over"):
            writer.commit(progress(200), {(ITEMS.topic, 0): 2}, TRUE)
    assert shop.rows("items") == []


def test_many_rows_of_a_key_of_two_columns(shop: MariadbReplica) -> None:
    """More than one statement takes."""
    both: TableSchema = replace(ITEMS, key=("id", "name"))
    rows = [
        record(number, f"n{number}", number)._replace(key=b'{"id":%d,"name":"n%d"}' % (number, number))
        for number in range(30_000)
    ]
    with session(opened(shop), both) as writer:
        apply(writer, 100, *rows)
        assert len(shop.rows("items")) == 30_000
        apply(writer, 200, *[each._replace(value=None, offset=each.offset + 30_000) for each in rows[1:]])
    assert shop.rows("items") == [(0, "n0")]


def test_the_certificate_of_the_server_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.sign("server")
    with (
        MariadbServer.open({"ssl-cert": str(shown.certificate), "ssl-key": str(shown.key)}) as server,
        fresh_mariadb(server) as database,
    ):
        shop = MariadbReplica(database)
        plain = shop.config()
        assert plain.sink is not None

        def trusting(root: Path) -> ReplicaDatabase:
            sink = plain.sink.model_copy(update={"url": f"{database.url}?ssl_ca={root}"}) if plain.sink else None
            return open_replica(plain.model_copy(update={"sink": sink}), application_name="test")

        with session(trusting(authority.root), ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
        assert shop.rows("items") == [(1, "a")]
        for root in (Authority.stranger(tmp_path).root, tmp_path / "missing.pem"):
            with pytest.raises(ReplicaRefused, match="correct ssl_ca"):
                trusting(root).upgrade()


@pytest.mark.long
def test_a_reader_that_holds_a_table_delays_its_change(shop: MariadbReplica) -> None:
    wider = replace(ITEMS, fingerprint="00000000000000cc", columns=(*ITEMS.columns, SchemaColumn("size", "int8")))
    with session(opened(shop), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0))
    with closing(shop.database.server.connect(shop.schema, autocommit=False)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM items")
        late = session(opened(shop), ITEMS, wider, resumes=True)
        with pytest.raises(ReplicaUnavailable, match="end the transaction that holds the table"), late:
            pass
    with session(opened(shop), ITEMS, wider, resumes=True) as writer:
        apply(writer, 200, record(2, "b", 1, wider))
    assert shop.rows("items") == [(1, "a", None), (2, "b", None)]
