"""The source keeps the bridge waiting, or a table is altered behind changes that are still to come."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

LONG = "CREATE TABLE {0} (id int PRIMARY KEY, n int, body text); ALTER TABLE {0} ALTER body SET STORAGE EXTERNAL; "


def live(deployment: Deployment, table: str) -> dict[str, dict[str, object]]:
    """The folded topic."""
    newest = {record.key: record.value for record in deployment.records(table)}
    return {(key or b"").decode(): json.loads(value) for key, value in newest.items() if value is not None}


@contextmanager
def locked_behind(database: Database, *statements: str) -> Iterator[None]:
    """Statements are committed, and from that moment on another session has table ``t`` locked."""
    with database.connect(autocommit=False) as writer, database.connect(autocommit=False) as locker:
        for statement in statements:
            writer.execute(statement)
        lock = threading.Thread(target=locker.execute, args=("LOCK TABLE t IN ACCESS EXCLUSIVE MODE",))
        lock.start()
        waits = "select from pg_locks where not granted and relation = 't'::regclass"
        eventually(lambda: database.execute(f"select exists ({waits})") == [(True,)])
        writer.commit()
        lock.join()
        yield
        locker.rollback()


def test_a_locked_table_holds_up_neither_what_came_before_nor_a_stop(database: Database, deploy: Deploy) -> None:
    """A minute of ALTER TABLE: no sign of life for the slot, Kafka gave the transaction up, SIGTERM was not heard."""
    database.execute(LONG.format("t") + "CREATE TABLE other (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT i, 0, repeat('x', 5000) FROM generate_series(1, 5) i")
    deployment = deploy(source={"tables": ["public.t", "public.other"]})
    deployment.start_bridge()
    deployment.wait_backfilled()
    database.execute("UPDATE t SET n = 1")
    deployment.wait_published()
    with locked_behind(database, "INSERT INTO other VALUES (1)", "UPDATE t SET n = 2"):
        eventually(lambda: live(deployment, "public.other"), message=deployment.bridge.tail)
        progress = deployment.progress()
        assert progress is not None
        assert progress.partial is not None, "published up to the row that cannot be read"
        deployment.bridge.wait_said("holds AccessExclusiveLock on public.t")
        assert "the stream waits: a row must be read again" in deployment.bridge.said()
        deployment.bridge.signal(signal.SIGTERM)
        assert deployment.bridge.wait(10) == 0
        database.execute("INSERT INTO other VALUES (2)")
    deployment.start_bridge()
    deployment.assert_published("public.t", "public.other")


@pytest.mark.parametrize(
    "altered", ["ALTER TABLE t DROP COLUMN body", "ALTER TABLE t RENAME body TO contents", "ALTER TABLE t RENAME TO u"]
)
def test_a_long_column_is_altered_before_its_row_is_read_again(
    database: Database, deploy: Deploy, altered: str
) -> None:
    """No start went on from there: "cannot re-read unchanged TOAST columns"."""
    database.execute(LONG.format("t") + LONG.format("gone"))
    for table in ("t", "gone"):
        database.execute(f"INSERT INTO {table} SELECT i, 0, repeat('x', 5000) FROM generate_series(1, 5) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    database.execute("UPDATE t SET n = 1 WHERE id < 4; UPDATE t SET id = 9 WHERE id = 4; UPDATE gone SET n = 1")
    database.execute(
        f"{altered}; DROP TABLE gone; CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later VALUES (1)"
    )
    deployment.start_bridge()
    deployment.wait_published()
    deployment.wait_backfilled("public.later")
    table = "u" if altered.endswith("TO u") else "t"
    expected = {f'{{"id":{id_}}}': n for id_, n in database.execute(f"select id, n from {table}")}

    def published() -> bool:
        assert not deployment.bridge.ended, deployment.bridge.tail()
        return {key: row["n"] for key, row in live(deployment, f"public.{table}").items()} == expected

    eventually(published, message=lambda: f"{live(deployment, f'public.{table}')}\n{deployment.bridge.tail()}")
    if table == "t":
        database.execute("UPDATE t SET n = n + 1")  # rows that did not change keep their old shape until they do
    deployment.assert_published(f"public.{table}")


EXCHANGED = "ALTER TABLE t RENAME body TO x; ALTER TABLE t RENAME other TO body; ALTER TABLE t RENAME x TO other"

ANOTHER = "ALTER TABLE t DROP COLUMN body; ALTER TABLE t ADD COLUMN body text DEFAULT 'another'"


@pytest.mark.parametrize(
    ("altered", "crashpoint"), [(EXCHANGED, ""), (ANOTHER, ""), (ANOTHER, "bridge.after_kafka_commit")]
)
def test_a_long_column_gives_its_name_to_another_before_its_row_is_read_again(
    database: Database, deploy: Deploy, altered: str, crashpoint: str
) -> None:
    """A record had the value of the other column, maybe under both names: a row that the table never had."""
    long = "x" * 5000
    columns = "(id int PRIMARY KEY, n int, other text, body text)"
    database.execute(f"CREATE TABLE t {columns}; ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    database.execute("INSERT INTO t SELECT i, 0, 'short', %s FROM generate_series(1, 5) i", (long,))
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    before = {(row["other"], row["body"]) for row in live(deployment, "public.t").values()}
    assert before == {("short", long)}
    deployment.bridge.stop()
    database.execute("INSERT INTO t VALUES (6, 1, 'short', %s)", (long,))  # puts the definition on record
    database.execute("UPDATE t SET n = 1 WHERE id < 6")
    database.execute(altered)
    database.execute("UPDATE t SET n = 2 WHERE id IN (1, 6)")
    after = set(database.execute("SELECT other, body FROM t"))
    deployment.bridge.start(crashpoint=crashpoint)
    if crashpoint:
        assert deployment.bridge.wait(60) == -signal.SIGKILL
        deployment.bridge.start()
    deployment.wait_published()
    deployment.wait_equal("public.t")
    rows = [json.loads(record.value) for record in deployment.records("public.t") if record.value is not None]
    assert {(row["other"], row["body"]) for row in rows if row["n"] < 1} == before
    assert {(row["other"], row["body"]) for row in rows if row["n"]} <= before | after
    if altered == ANOTHER:
        streamed = [row for row in rows if row["n"] == 1 and row["id"] < 6]
        assert {row["body"] for row in streamed} == {"another"}, "read again behind the change, by a repair"
        headers = [
            record.header for record in deployment.records("public.t") if record.value and b'"n":1,' in record.value
        ]
        assert all(b"op=u" not in header for header in headers)
    assert "altered later in the stream" in deployment.bridge.said()
    database.execute("UPDATE t SET n = 3")
    deployment.assert_published("public.t")


def test_a_document_becomes_text_before_its_row_is_read_again(database: Database, deploy: Deploy) -> None:
    """The text was published as the document that it had been, and the record was no JSON."""
    database.execute(LONG.format("t").replace("body text", "body json"))
    database.execute("INSERT INTO t SELECT i, 0, to_json(repeat('x', 5000)) FROM generate_series(1, 3) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    database.execute("UPDATE t SET n = 1")
    database.execute("ALTER TABLE t ALTER body TYPE text USING 'no document: ' || body")
    deployment.start_bridge()
    deployment.wait_published()
    eventually(
        lambda: {row["n"] for row in live(deployment, "public.t").values()} == {1}, message=deployment.bridge.tail
    )
    assert all(json.loads(record.value or b"null") for record in deployment.records("public.t"))
    deployment.wait_equal("public.t")


def test_a_key_changed_twice_while_the_row_is_read_again(database: Database, deploy: Deploy) -> None:
    """Committed together, or the row would be under no key in between."""
    database.execute(LONG.format("t") + "INSERT INTO t VALUES (1, 0, repeat('x', 5000))")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    database.execute("UPDATE t SET id = 2")
    database.execute("UPDATE t SET id = 3")
    deployment.start_bridge()
    deployment.assert_published("public.t")
    assert set(live(deployment, "public.t")) == {'{"id":3}'}


def test_long_rows_read_again_take_little_memory(database: Database, deploy: Deploy) -> None:
    """2,000 rows of 512 kB took 2.2 GB; a quarter of them would have taken half a gigabyte."""
    database.execute(LONG.format("t") + "INSERT INTO t SELECT i, 0, repeat('x', 524288) FROM generate_series(1, 500) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled(timeout_s=120)
    before = deployment.bridge.peak_rss_bytes()
    database.execute("UPDATE t SET n = 1")
    deployment.wait_published(timeout_s=120)
    assert deployment.bridge.peak_rss_bytes() - before < 100e6
    deployment.assert_published("public.t")
