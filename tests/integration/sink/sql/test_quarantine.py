"""PostgreSQL → topics → a replica that refuses rows: it holds the source's rows but for those that it names."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from urllib.request import urlopen

import pytest

from cdc.lab.stack import AnyRegistry
from tests.support.file_replicas import FileDeployment, FileReplica, MariadbTables, SqliteReplica
from tests.support.forms import in_form
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.waiting import eventually

DeployToFile = Callable[..., FileDeployment]

ROWS = 40
TABLES = ("public.orders", "public.plain")
REFUSED = "v < 0 OR length(note) > 8"
QUARANTINE = {"quarantine": {"public.orders": {"budget": 1_000}}}
POINTS = (
    "sink.before_apply:2",
    "sink.before_apply:5",
    "sink.before_replica_commit:2",
    "sink.before_replica_commit:5",
    "sink.after_replica_commit:2",
    "sink.after_replica_commit:4",
)

AGAIN = ("sink.before_apply:2", "sink.before_apply:4", "sink.before_replica_commit:1")


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int, note text); CREATE TABLE plain (id int PRIMARY KEY)"
    )
    return database


def place_of(file: FileReplica) -> str:
    """The replica table of ``public.orders``."""
    return "public.orders" if file.is_exclusive else "orders"


@pytest.fixture
def narrow(file: FileReplica) -> FileReplica:
    """It takes no negative ``v``, and no ``note`` of more than eight characters: MariaDB by the column's width."""
    if isinstance(file, SqliteReplica):
        note, options = "TEXT CHECK (length(note) <= 8)", "STRICT"
    elif isinstance(file, MariadbTables):
        note, options = "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "ENGINE = InnoDB"
    else:
        note, options = "VARCHAR CHECK (length(note) <= 8)", ""
        file.execute("CREATE SCHEMA public")
    file.execute(
        f"CREATE TABLE {place_of(file)} (id INTEGER NOT NULL, v INTEGER, note {note}, PRIMARY KEY (id),"
        f" CONSTRAINT positive CHECK (v >= 0)) {options}"
    )
    return file


@pytest.fixture
def loosen(file: FileReplica) -> Callable[[FileDeployment], None]:
    """Has the replica take negative numbers from now on."""

    def done(deployment: FileDeployment) -> None:
        with deployment.opened():
            if isinstance(file, MariadbTables):
                file.execute("ALTER TABLE orders DROP CONSTRAINT positive")
                return
            place = place_of(file)
            kinds, options = ("INTEGER, v INTEGER, note TEXT", " STRICT" if isinstance(file, SqliteReplica) else "")
            file.execute(
                f"CREATE TABLE {place.replace('orders', 'loose')} (id {kinds}, PRIMARY KEY (id)){options}",
                f"INSERT INTO {place.replace('orders', 'loose')} SELECT id, v, note FROM {place}",
                f"DROP TABLE {place}",
                f"ALTER TABLE {place.replace('orders', 'loose')} RENAME TO orders",
            )

    return done


def change(database: Database, chance: random.Random, count: int) -> None:
    """Rows become good and bad, get other keys, come and go, one source transaction each."""
    with database.connect() as connection:
        for _ in range(count):
            row, other = chance.randrange(1, ROWS), chance.randrange(1, ROWS)
            value, note = chance.randrange(-40, 100), "x" * chance.randrange(11)
            with suppress(Exception):  # a change of the key to one that is there
                connection.execute(
                    chance.choice(
                        [
                            f"UPDATE orders SET v = {value}, note = '{note}' WHERE id = {row}",
                            f"UPDATE orders SET id = {other}, v = {value} WHERE id = {row}",
                            f"DELETE FROM orders WHERE id = {row}",
                            f"INSERT INTO orders VALUES ({row}, {value}, '{note}') ON CONFLICT DO NOTHING",
                            f"UPDATE orders SET v = v - 3 WHERE id % 5 = {row % 5}",
                            f"INSERT INTO plain VALUES ({chance.randrange(10**9)}) ON CONFLICT DO NOTHING",
                        ]
                    ).encode()
                )


def entries(file: FileReplica) -> list[int]:
    return sorted(json.loads(key)["id"] for (key,) in file.execute("SELECT q.key FROM cdc_quarantined_row AS q"))


def assert_excepted(deployment: FileDeployment) -> None:
    """See that the replica lacks just the rows that it refuses, names them, and has the other table whole."""
    deployment.wait_mirrored()
    bad = sorted(key for (key,) in deployment.source.execute(f"SELECT id FROM orders WHERE {REFUSED}"))
    with deployment.opened():
        assert entries(deployment.file) == bad, deployment.sink.tail()
        deployment.assert_holds("public.orders", [(str(each).encode(),) for each in bad])
        deployment.assert_holds("public.plain")
        states = {name.rpartition(".")[2]: state for name, state in deployment.file.states().items()}
        assert states == {"orders": "excepted" if bad else "exact", "plain": "exact"}


def test_refused_rows_stand_aside_until_they_are_mended(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile
) -> None:
    shop.execute(f"INSERT INTO orders SELECT n, n % 7 - 1, 'n' || n FROM generate_series(1, {ROWS}) n")
    deployment = deploy_to_file(sink=QUARANTINE)
    deployment.start()
    assert_excepted(deployment)
    shop.execute("INSERT INTO orders SELECT n, 1, repeat('x', n % 10) FROM generate_series(100, 130) n")
    shop.execute("UPDATE orders SET v = -1, note = NULL WHERE id % 3 = 0; INSERT INTO plain VALUES (1), (2)")
    assert_excepted(deployment)
    # Mended, moved away, deleted
    shop.execute(
        "UPDATE orders SET v = 1 WHERE id % 2 = 0; UPDATE orders SET id = id + 1000 WHERE id % 7 = 0;"
        "DELETE FROM orders WHERE id % 5 = 0"
    )
    assert_excepted(deployment)
    shop.execute("UPDATE orders SET v = 0, note = 'good' WHERE " + REFUSED)
    deployment.assert_equal(*TABLES)
    with deployment.opened():
        assert entries(narrow) == []
    deployment.stop()


def test_a_large_transaction_with_refused_rows(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile
) -> None:
    """More rows than wait in memory for a cut: what was written is given back and read again."""
    deployment = deploy_to_file(sink=QUARANTINE)
    deployment.start()
    deployment.assert_equal(*TABLES)
    sessions = deployment.sink.log.read_text().count("mirroring")
    shop.execute(
        "INSERT INTO orders SELECT n, CASE WHEN n % 11000 = 5 THEN -1 ELSE n END, 'n' FROM generate_series(1, 75000) n"
    )
    deployment.wait_mirrored()
    assert deployment.sink.log.read_text().count("mirroring") > sessions, "the transaction was small enough"
    assert_excepted(deployment)
    shop.execute("UPDATE orders SET v = 0 WHERE v < 0")
    deployment.assert_equal(*TABLES)
    deployment.stop()


def test_one_more_than_the_budget_stops_the_table_alone(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile
) -> None:
    deployment = deploy_to_file(sink={"quarantine": {"public.orders": {"budget": 3}}})
    deployment.start()
    shop.execute("INSERT INTO orders SELECT n, -1, '' FROM generate_series(1, 3) n; INSERT INTO orders VALUES (9, 9)")
    assert_excepted(deployment)
    shop.execute("INSERT INTO orders VALUES (4, -1), (5, 5); INSERT INTO plain VALUES (4)")
    deployment.wait_mirrored()
    deployment.sink.wait_said("3 rows of the table are in quarantine already, as many as sink.quarantine allows")
    shop.execute("INSERT INTO plain VALUES (5)")
    deployment.wait_mirrored()
    with deployment.opened():
        assert entries(narrow) == [1, 2, 3]
        assert narrow.rows("public.orders", ["id"]) in ([(9,)], [("9",)])
        deployment.assert_holds("public.plain")
        states = {name.rpartition(".")[2]: state for name, state in narrow.states().items()}
        assert states == {"orders": "stopped", "plain": "exact"}
    deployment.sink.stop()
    shop.execute("UPDATE orders SET v = 1 WHERE id < 4")
    deployment.sink.start()
    deployment.sink.wait_said("mirroring")
    assert_excepted(deployment)
    deployment.stop()


@pytest.mark.parametrize("point", sampled(POINTS, (POINTS[3],)))
def test_sink_killed_at(shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile, point: str) -> None:
    shop.execute(f"INSERT INTO orders SELECT n, n % 7 - 1, 'n' || n FROM generate_series(1, {ROWS}) n")
    chance = random.Random(7)
    deployment = deploy_to_file(sink=QUARANTINE)
    deployment.start_bridge()
    deployment.sink.start(crashpoint=point)
    for _ in range(100):
        if deployment.sink.ended:
            break
        change(shop, chance, 10)
        deployment.wait_published()
    assert deployment.sink.wait() == -signal.SIGKILL
    change(shop, chance, 25)
    deployment.sink.start()
    change(shop, chance, 25)
    assert_excepted(deployment)
    shop.execute("UPDATE orders SET v = 0, note = '' WHERE " + REFUSED)
    deployment.assert_equal(*TABLES)
    with deployment.opened():
        assert entries(narrow) == []
    deployment.stop()


@pytest.fixture
def killed_between(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile
) -> Callable[[str], FileDeployment]:
    """A sink that is killed while it reads a large transaction with refused rows."""

    def made(point: str) -> FileDeployment:
        deployment = deploy_to_file(sink=QUARANTINE)
        deployment.start_bridge()
        shop.execute(
            "INSERT INTO orders SELECT n, CASE WHEN n % 11000 = 5 THEN -1 ELSE n END, ''"
            " FROM generate_series(1, 75000) n"
        )
        deployment.sink.start(crashpoint=point)
        assert deployment.sink.wait() == -signal.SIGKILL
        return deployment

    return made


@pytest.mark.long
@pytest.mark.parametrize("point", AGAIN)
def test_killed_while_a_large_transaction_is_read_again(
    killed_between: Callable[[str], FileDeployment], point: str
) -> None:
    """What the next session would have been told is gone with the process: the database refuses the rows again."""
    deployment = killed_between(point)
    deployment.sink.start()
    assert_excepted(deployment)
    deployment.source.execute("UPDATE orders SET v = 0 WHERE v < 0")
    deployment.assert_equal(*TABLES)
    deployment.stop()


def test_a_person_looks_and_has_them_published_again(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile, loosen: Callable[[FileDeployment], None]
) -> None:
    deployment = deploy_to_file(sink=QUARANTINE)
    deployment.start()
    shop.execute("INSERT INTO orders VALUES (1, 1), (2, -2), (3, -3)")
    assert_excepted(deployment)
    said = deployment.command("status", code=3)
    assert "orders lacks 2 rows that it refused" in said
    assert "orders: excepted" in said
    shop.execute("INSERT INTO plain VALUES (1)")
    deployment.wait_mirrored()
    with urlopen(f"http://127.0.0.1:{deployment.settings['http']['sink_port']}/metrics", timeout=5) as answer:
        states = re.findall(rb"^cdc_sink_table_state{(.*)} 1.0$", answer.read(), re.MULTILINE)
    assert sorted(b"excepted" in each for each in states) == [False, True]
    listed = deployment.command("quarantine", "list")
    assert 'public.orders  {"id":2}  partition' in listed
    assert "the replica refuses it: " in listed
    told = json.loads(deployment.command("quarantine", "list", "--json"))
    assert sorted((each["table"], each["key"], each["refused_by"]) for each in told) == [
        ("public.orders", f'{{"id":{n}}}', "replica") for n in (2, 3)
    ]
    shown = deployment.command("quarantine", "show", "public.orders", "2").splitlines()
    assert shown[0].startswith('public.orders {"id":2}, refused by the replica since ')
    assert "is not in quarantine" in deployment.command("quarantine", "retry", "public.orders", "1", code=2)
    deployment.command("quarantine", "retry", "public.orders")
    assert_excepted(deployment)
    loosen(deployment)
    assert "1 rows that the replica refuses were published again" in deployment.command(
        "quarantine", "retry", "public.orders", "2"
    )
    deployment.wait_mirrored()
    eventually(lambda: '{"id":2}' not in deployment.command("quarantine", "list"), 30, deployment.sink.tail)
    assert '{"id":3}' in deployment.command("quarantine", "list")
    deployment.command("quarantine", "retry", "public.orders")
    deployment.assert_equal(*TABLES)
    assert "nothing is in quarantine" in deployment.command("quarantine", "list")
    deployment.command("status")
    deployment.stop()


def test_a_table_that_was_dropped_is_filled_without_entries(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile
) -> None:
    deployment = deploy_to_file(sink=QUARANTINE)
    deployment.start()
    shop.execute("INSERT INTO orders SELECT n, n % 7 - 1, 'n' || n FROM generate_series(1, 50) n")
    assert_excepted(deployment)
    deployment.sink.stop()
    narrow.execute(f"DROP TABLE {place_of(narrow)}")
    deployment.sink.start()
    deployment.sink.wait_said("table is rebuilt" if narrow.is_exclusive else "mirroring")
    deployment.assert_equal(*TABLES)
    with deployment.opened():
        assert entries(narrow) == []
    deployment.stop()


def test_records_in_another_format(
    shop: Database, narrow: FileReplica, deploy_to_file: DeployToFile, registry: AnyRegistry
) -> None:
    """Keys and values in Avro: the entries have keys in JSON, and end with the next record of the same key."""
    deployment = deploy_to_file(**in_form("avro keys", registry, sink=QUARANTINE))
    shop.execute("INSERT INTO orders SELECT n, n % 7 - 1, 'n' || n FROM generate_series(1, 50) n")
    deployment.start()
    assert_excepted(deployment)
    change(shop, random.Random(3), 60)
    assert_excepted(deployment)
    deployment.command("quarantine", "retry", "public.orders")
    assert_excepted(deployment)
    shop.execute("UPDATE orders SET v = 0, note = '' WHERE " + REFUSED)
    deployment.assert_equal(*TABLES)
    deployment.stop()
