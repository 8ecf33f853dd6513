"""A table whose topic has to begin anew, and a bridge that ends on the way: no row is lost, nobody is told lies."""

from __future__ import annotations

import signal

import pytest

from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillRequest
from cdc.kafka.publish.requests import write_request
from cdc.lab.stack import RegistryServer
from tests.support.deployment import Deploy, Deployment
from tests.support.sampling import sampled
from tests.support.servers import Database

ROWS = 3_000
MAKE = "CREATE TABLE {0} (id int PRIMARY KEY, alt int NOT NULL, n int); " + (
    f"INSERT INTO {{0}} SELECT i, -i, {{1}} FROM generate_series(1, {ROWS}) i"
)
SWAP = "BEGIN; ALTER TABLE t RENAME TO x; ALTER TABLE spare RENAME TO t; ALTER TABLE x RENAME TO spare; COMMIT"
AGAIN = "BEGIN; DROP TABLE t; " + MAKE.format("t", 3) + "; COMMIT"
ENDS = ("bridge.inside_begin_anew:1", "bridge.inside_begin_anew:2")
"""With the backfill on record, before the first tombstone; and behind the last one, with the definition."""

NEW_KEY = "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (alt)"


def assert_honest(deployment: Deployment) -> None:
    """Whoever reads the progress now is not told that the topic is whole while rows are missing."""
    progress = deployment.backfills()["public.t"]
    newest = {record.key: record.value for record in deployment.records("public.t")}
    live = sum(value is not None for value in newest.values())
    assert live == ROWS or not (progress.whole and progress.state == "done"), f"{live} rows, and it says {progress}"


CASES = [(SWAP, "SIGTERM"), (SWAP, ENDS[0]), (SWAP, ENDS[1]), (NEW_KEY, "SIGTERM"), (AGAIN, ENDS[1])]


@pytest.mark.parametrize(
    ("change", "end"),
    sampled(CASES, (CASES[0], CASES[-1])),
)
def test_a_bridge_that_ends_while_a_table_begins_anew_publishes_all_of_it(
    database: Database, deploy: Deploy, change: str, end: str
) -> None:
    """SIGTERM: 1 row of 20,000, and it said done."""
    database.execute(MAKE.format("t", 1) + ";" + MAKE.format("spare", 2))
    deployment = deploy(source={"tables": ["public.t"], "on_gap": "rebackfill"})
    deployment.start_bridge(crashpoint="" if end == "SIGTERM" else end)
    deployment.wait_backfilled()
    with database.connect() as connection:
        connection.execute(change)
        connection.execute("UPDATE t SET n = 8 WHERE id = 1")
    if end == "SIGTERM":
        deployment.bridge.wait_said("table begins anew")
        deployment.bridge.signal(signal.SIGTERM)
        assert deployment.bridge.wait() == 0
    else:
        assert deployment.bridge.wait(60) == -signal.SIGKILL
    if not end.endswith(":2"):  # its open Kafka transaction hides the end until the next start
        assert_honest(deployment)
    deployment.start_bridge()
    assert_honest(deployment)
    deployment.wait_published()
    deployment.wait_backfilled("public.t")
    deployment.assert_published("public.t")
    assert deployment.backfills()["public.t"].whole


def test_a_bridge_that_dies_behind_the_commit_of_a_new_beginning_goes_on_with_it(
    database: Database, deploy: Deploy
) -> None:
    """Changed while the bridge was away, so it is found at the start, and killed behind each of the first commits."""
    database.execute(MAKE.format("t", 1) + ";" + MAKE.format("spare", 2))
    deployment = deploy(source={"tables": ["public.t"]})
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    for visit in (1, 2):
        with database.connect() as connection:
            connection.execute(SWAP)
            connection.execute("UPDATE t SET n = 8 WHERE id = 1")
        deployment.bridge.start(crashpoint=f"bridge.after_kafka_commit:{visit}")
        assert deployment.bridge.wait(60) == -signal.SIGKILL
        assert_honest(deployment)
        deployment.start_bridge()
        deployment.wait_published()
        deployment.wait_backfilled("public.t")
        deployment.assert_published("public.t")
        deployment.bridge.stop()


def test_a_backfill_of_some_rows_of_a_table_made_anew_becomes_one_of_all(database: Database, deploy: Deploy) -> None:
    """Its chunks find the new table before the stream has a change of it: the topic was emptied for some rows only."""
    database.execute(MAKE.format("t", 1) + ";" + MAKE.format("spare", 2))
    deployment = deploy(source={"tables": ["public.t"]})
    deployment.start_bridge(crashpoint="bridge.inside_begin_anew:1")
    deployment.wait_backfilled()
    with database.connect() as connection:
        connection.execute(SWAP)
    request = BackfillRequest("some", "start", ("public.t",), where="id < 10")
    write_request({"bootstrap.servers": deployment.bootstrap}, progress_topic(deployment.name), request)
    assert deployment.bridge.wait(60) == -signal.SIGKILL
    assert_honest(deployment)
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    deployment.assert_published("public.t")


@pytest.mark.parametrize("end", ENDS)
def test_a_bridge_that_dies_while_keys_become_avro_leaves_no_row_under_two_keys(
    database: Database, deploy: Deploy, registry: RegistryServer, end: str
) -> None:
    database.execute(MAKE.format("t", 1))
    deployment = deploy(source={"tables": ["public.t"]}, registry={"url": registry.url})
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    database.execute("DELETE FROM t WHERE id = 7; INSERT INTO t VALUES (0, 0, 0)")
    deployment.settings["topics"]["key_format"] = "avro"
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge(crashpoint=end)
    assert deployment.bridge.wait(60) == -signal.SIGKILL
    deployment.start_bridge()
    deployment.wait_equal("public.t")
    newest = {record.key or b"": record.value for record in deployment.records("public.t")}
    assert {key[:1] for key, value in newest.items() if value is not None} == {b"\0"}
    assert sum(value is not None for value in newest.values()) == ROWS
