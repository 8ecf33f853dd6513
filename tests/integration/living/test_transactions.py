"""What a living database does in its transactions: each table is the same on all sides afterwards."""

from __future__ import annotations

import pytest

from tests.integration.living.conftest import Living
from tests.support.deployment import Deployment
from tests.support.topic_audit import audit


@pytest.fixture(scope="module")
def live(living: Living) -> Deployment:
    return living(
        "CREATE TABLE first (id integer PRIMARY KEY)", {"tables": ["public.*"], "publication_mode": "all_tables"}
    )


def test_logical_messages_and_empty_transactions_do_no_harm(live: Deployment) -> None:
    live.source.execute("CREATE TABLE told (id integer PRIMARY KEY)")
    with live.source.connect() as connection:
        connection.execute("SELECT pg_logical_emit_message(false, 'before', 'not transactional')")
        with connection.transaction():
            connection.execute("SELECT pg_logical_emit_message(true, 'inside', 'of a transaction')")
            connection.execute("INSERT INTO told VALUES (1)")
            connection.execute("SELECT pg_logical_emit_message(true, 'cdc', convert_to('\xff', 'LATIN1'))")
            connection.execute("INSERT INTO told VALUES (2)")
        with connection.transaction():
            connection.execute("SELECT pg_logical_emit_message(true, 'alone', '')")
        with connection.transaction():
            connection.execute("SELECT pg_current_xact_id()")  # an id, and nothing to tell
        with connection.transaction():
            connection.execute("CREATE TEMPORARY TABLE scratch AS SELECT 1 AS n")
            connection.execute("UPDATE scratch SET n = 2")
    live.assert_equal("public.told")


def test_two_phase_commit(live: Deployment) -> None:
    if live.source.execute("SHOW max_prepared_transactions")[0][0] == "0":
        pytest.skip("the server has max_prepared_transactions = 0")
    live.source.execute("CREATE TABLE phased (id integer PRIMARY KEY, note text)")
    kept, lost = f"kept_{live.name}", f"lost_{live.name}"
    for name, number in ((kept, 1), (lost, 2)):
        with live.source.connect(autocommit=False) as connection:
            connection.execute("INSERT INTO phased VALUES (%s, 'prepared')", [number])
            connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
    live.source.execute("INSERT INTO phased VALUES (3, 'meanwhile')")
    live.assert_equal("public.phased")  # neither of the prepared ones is there, nor do they hold anything up
    assert len(live.records("public.phased")) == 1
    live.source.execute(f"COMMIT PREPARED '{kept}'")
    live.source.execute(f"ROLLBACK PREPARED '{lost}'")
    live.assert_equal("public.phased")
    assert audit(live.records("public.phased")) == []
    assert live.source.execute("SELECT count(*) FROM phased") == [(2,)]


def test_subtransactions_that_are_rolled_back(live: Deployment) -> None:
    live.source.execute(
        """
        CREATE TABLE nested (id integer PRIMARY KEY, note text);
        CREATE FUNCTION tries() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
          FOR i IN 1..50 LOOP
            BEGIN
              INSERT INTO nested VALUES (i, 'kept');
              UPDATE nested SET note = 'changed' WHERE id = i - 1;
              IF i % 3 = 0 THEN RAISE division_by_zero; END IF;
            EXCEPTION WHEN division_by_zero THEN INSERT INTO nested VALUES (-i, 'instead');
            END;
          END LOOP;
        END $$;
        SELECT tries()
        """
    )
    live.assert_equal("public.nested")
    assert live.source.execute("SELECT count(*) FROM nested") == [(50,)]


def test_rows_that_share_an_lsn_are_told_apart(live: Deployment) -> None:
    """COPY and INSERT … SELECT write many rows in one WAL record."""
    live.source.execute("CREATE TABLE crowd (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n serial, note text)")
    with live.source.connect() as connection:
        with connection.cursor().copy("COPY crowd (note) FROM STDIN") as copy:
            copy.write("".join(f"copied {i}\n" for i in range(3_000)))
        connection.execute("INSERT INTO crowd (note) VALUES " + ", ".join(f"('listed {i}')" for i in range(200)))
        connection.execute("INSERT INTO crowd (note) SELECT 'selected ' || i FROM generate_series(1, 500) i")
    live.assert_equal("public.crowd")
    records = live.records("public.crowd")
    assert len(records) == 3_700
    assert audit(records) == []


@pytest.mark.pg(since=15)  # MERGE
def test_statements_that_change_many_tables(live: Deployment) -> None:
    live.source.execute(
        """
        CREATE TABLE parent (id integer PRIMARY KEY, total integer NOT NULL DEFAULT 0);
        CREATE TABLE child (
          id integer PRIMARY KEY, parent_id integer REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, n integer);
        CREATE TABLE log (id bigserial PRIMARY KEY, what text, at timestamptz DEFAULT now());
        CREATE FUNCTION log_child() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO log (what) VALUES (TG_OP);
          UPDATE parent SET total = total + 1 WHERE id = coalesce(NEW.parent_id, OLD.parent_id);
          RETURN NULL;
        END $$;
        CREATE TRIGGER log_child AFTER INSERT OR UPDATE OR DELETE ON child FOR EACH ROW EXECUTE FUNCTION log_child();
        """
    )
    with live.source.connect() as connection:
        for statement in (
            "INSERT INTO parent SELECT i FROM generate_series(1, 10) i",
            "INSERT INTO child SELECT i, i % 10 + 1, i FROM generate_series(1, 40) i",
            "INSERT INTO parent VALUES (1, 5), (11, 5), (12, 5) ON CONFLICT (id) DO UPDATE SET total = excluded.total",
            "INSERT INTO parent VALUES (1), (13) ON CONFLICT DO NOTHING",
            "UPDATE child SET n = n + p.total FROM parent p WHERE p.id = child.parent_id AND p.id < 5",
            "UPDATE parent SET id = id + 100 WHERE id IN (2, 3)",  # cascades to the children
            "DELETE FROM parent WHERE id IN (4, 5)",  # as well
            "MERGE INTO child c USING (SELECT i AS id, i % 3 AS n FROM generate_series(30, 60) i) s ON c.id = s.id"
            " WHEN MATCHED AND s.n = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n"
            " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, s.n)",
            "WITH gone AS (DELETE FROM child WHERE id > 55 RETURNING id) INSERT INTO parent SELECT id + 1000 FROM gone",
        ):
            connection.execute(statement.encode())
    live.assert_equal("public.parent", "public.child", "public.log")


def test_transactions_that_were_replicated_themselves(live: Deployment) -> None:
    """A replication origin marks them; the bridge takes them like others."""
    live.source.execute("CREATE TABLE foreigner (id integer PRIMARY KEY)")
    origin = f"origin_{live.name}"
    with live.source.connect() as connection:
        connection.execute("SELECT pg_replication_origin_create(%s)", [origin])
        connection.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
        with connection.transaction():
            connection.execute("SELECT pg_replication_origin_xact_setup('0/AB', now())")
            connection.execute("INSERT INTO foreigner VALUES (1)")
        connection.execute("SELECT pg_replication_origin_session_reset()")
        connection.execute("INSERT INTO foreigner VALUES (2)")
        connection.execute("SELECT pg_replication_origin_drop(%s)", [origin])
    live.assert_equal("public.foreigner")
