"""Partitions that come, go and move their rows, under the name of their root."""

from __future__ import annotations

import json

import pytest

from cdc.lab.proof.comparison import describe, pinned
from tests.integration.living.conftest import Living
from tests.integration.living.waiting import cdc, wait_equal
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.topic_audit import audit

SETUP = """
CREATE TABLE parts (region text, id integer, note text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE TABLE parts_us PARTITION OF parts FOR VALUES IN ('us') PARTITION BY RANGE (id);
CREATE TABLE parts_us_low PARTITION OF parts_us FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_us_high PARTITION OF parts_us FOR VALUES FROM (100) TO (1000);
INSERT INTO parts SELECT 'eu', i, 'before' FROM generate_series(1, 10) i;
INSERT INTO parts SELECT 'us', i * 20, 'before' FROM generate_series(1, 10) i;
CREATE TABLE ancestor (id integer PRIMARY KEY, note text);
CREATE TABLE heir (extra text, PRIMARY KEY (id)) INHERITS (ancestor);
INSERT INTO ancestor VALUES (1, 'of the ancestor'); INSERT INTO heir VALUES (1, 'of the heir', 'x');
"""


@pytest.fixture(scope="module")
def live(living: Living) -> Deployment:
    return living(SETUP, {"tables": ["public.*"], "exclude": ["public.side_*"]})


def test_rows_that_move_between_partitions(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("UPDATE parts SET region = 'us' WHERE region = 'eu' AND id < 4")
        connection.execute("UPDATE parts SET id = id + 501 WHERE region = 'us' AND id IN (20, 40)")
        with connection.transaction():  # there and back, and through a key that somebody else had
            connection.execute("DELETE FROM parts WHERE region = 'us' AND id = 60")
            connection.execute("UPDATE parts SET region = 'us', id = 60 WHERE region = 'eu' AND id = 5")
            connection.execute("UPDATE parts SET region = 'eu', note = 'back' WHERE region = 'us' AND id = 60")
        connection.execute("INSERT INTO parts_us_high VALUES ('us', 500, 'straight into the leaf')")
        connection.execute("DELETE FROM parts_us WHERE id = 500; DELETE FROM parts WHERE id = 6")
    wait_equal(live, "public.parts")
    assert audit(live.records("public.parts")) == []


def test_partitions_attached_detached_and_truncated(live: Deployment, pg_major: int) -> None:
    """The stream does not tell of rows that an attached partition brings or a detached one takes; a backfill does.

    The walsender of PostgreSQL 14 goes on with what it knew of the partition until the publication is altered.
    """
    look_again = f"ALTER PUBLICATION {live.slot()} SET (publish_via_partition_root = true)" if pg_major == 14 else ""
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE side_asia (LIKE parts INCLUDING ALL)")
        connection.execute("INSERT INTO side_asia SELECT 'asia', i, 'brought along' FROM generate_series(1, 5) i")
        connection.execute("ALTER TABLE parts ATTACH PARTITION side_asia FOR VALUES IN ('asia');" + look_again)
        connection.execute("INSERT INTO parts VALUES ('asia', 6, 'in the stream')")
        connection.execute("UPDATE parts SET note = 'changed' WHERE region = 'asia' AND id = 1")
        connection.execute("CREATE TABLE parts_new PARTITION OF parts FOR VALUES IN ('new')")
        connection.execute("INSERT INTO parts VALUES ('new', 1, 'in a new partition')")
        connection.execute("TRUNCATE parts_us_low")
        connection.execute("ALTER TABLE parts DETACH PARTITION parts_eu;" + look_again)
        connection.execute("ALTER TABLE parts_eu RENAME TO side_eu")
        connection.execute("INSERT INTO side_eu VALUES ('eu', 1000, 'not in parts any more')")
    live.wait_published()
    keys = {record.key for record in live.records("public.parts")}
    assert b'{"id":6,"region":"asia"}' in keys
    assert b'{"id":1,"region":"new"}' in keys
    assert b'{"id":1000,"region":"eu"}' not in keys
    assert "done" in cdc(live, "backfill", "public.parts", "--sweep")
    wait_equal(live, "public.parts")


def test_inheritance_makes_tables_of_their_own(live: Deployment) -> None:
    live.source.execute("UPDATE ancestor SET note = note || '!'")  # the heir's rows, too
    live.source.execute("INSERT INTO heir VALUES (2, 'n', 'y')")
    with pinned(live.source.dsn) as source:
        heir = describe(source, "public.heir")
    wait_equal(live, heir)
    live.wait_mirrored()
    assert live.replica.execute("SELECT * FROM ancestor") == [(1, "of the ancestor!")]


def test_a_new_partition_begins_with_another_replica_identity(database: Database, deploy: Deploy) -> None:
    """ALTER TABLE … REPLICA IDENTITY FULL on a root is no default for partitions to come."""
    database.execute(
        """
        CREATE TABLE coded (code text NOT NULL, part integer, id integer, PRIMARY KEY (id, part))
          PARTITION BY LIST (part);
        CREATE TABLE coded_1 PARTITION OF coded FOR VALUES IN (1);
        ALTER TABLE coded REPLICA IDENTITY FULL; ALTER TABLE coded_1 REPLICA IDENTITY FULL;
        """
    )
    deployment = deploy(source={"keys": {"public.coded": ["code"]}, "on_gap": "rebackfill"})
    deployment.start()
    database.execute("INSERT INTO coded VALUES ('a', 1, 1), ('b', 1, 2)")
    deployment.wait_published()
    database.execute("CREATE TABLE coded_2 PARTITION OF coded FOR VALUES IN (2); INSERT INTO coded VALUES ('c', 2, 3)")
    deployment.bridge.wait_said("has partitions with another replica identity than its root: public.coded_2")
    told = next(line for line in deployment.bridge.said().splitlines() if "has partitions with" in line)
    remedy = json.loads(told)["remedy"]
    assert remedy == "ALTER TABLE public.coded_2 REPLICA IDENTITY FULL;"
    deployment.bridge.stop()
    database.execute("UPDATE coded SET code = 'moved' WHERE id = 3")  # the stream does not tell the old key
    database.execute(remedy)
    deployment.start_bridge()
    deployment.bridge.wait_said("partition public.coded_2 had another replica identity than its root")
    with pinned(database.dsn) as source:
        shape = describe(source, "public.coded", ("code",))
    wait_equal(deployment, shape)
    deployment.stop()
