"""Tables that get another key, another name, or are made anew: topic and replica follow, or it is said why not."""

from __future__ import annotations

from itertools import groupby

import pytest

from cdc.base.errors import GapError
from cdc.contract.naming import schemas_topic
from cdc.contract.schema import parse_schema
from cdc.lab.proof.comparison import describe, pinned
from cdc.lab.proof.topic_side import read_header
from tests.integration.living.conftest import Living
from tests.integration.living.waiting import wait_equal
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.topic_audit import read_records

SWAPPED = (
    "BEGIN; ALTER TABLE left_one RENAME TO third; ALTER TABLE right_one RENAME TO left_one;"
    "ALTER TABLE third RENAME TO right_one; COMMIT"
)


@pytest.fixture(scope="module")
def live(living: Living) -> Deployment:
    return living(
        "CREATE TABLE first (id integer PRIMARY KEY); CREATE SCHEMA shelf; CREATE SCHEMA hidden",
        {
            "tables": ["public.*", "shelf.*"],
            "publication_mode": "all_tables",
            "on_gap": "rebackfill",
            "keys": {"public.by_choice": ["code"]},
        },
    )


def test_another_primary_key(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE rekeyed (id integer PRIMARY KEY, code text NOT NULL, n integer)")
        connection.execute("INSERT INTO rekeyed SELECT i, 'c' || i, i FROM generate_series(1, 30) i")
        live.assert_equal("public.rekeyed")
        connection.execute("ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey, ADD PRIMARY KEY (code, id)")
        connection.execute("UPDATE rekeyed SET n = -n WHERE id <= 5")
        connection.execute("INSERT INTO rekeyed VALUES (1, 'second of its id', 0)")
        connection.execute("UPDATE rekeyed SET code = 'moved' WHERE id = 6")
        connection.execute("DELETE FROM rekeyed WHERE id = 7")
    wait_equal(live, "public.rekeyed")
    said = live.bridge.said()
    assert "its key is now (code, id), but its topic was written with (id)" in said
    with live.source.connect() as connection:  # and back again, in one transaction with changes before and after it
        connection.execute("DELETE FROM rekeyed WHERE code = 'second of its id'")
        with connection.transaction():
            connection.execute("UPDATE rekeyed SET n = 100 WHERE id = 10")
            connection.execute("ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey, ADD PRIMARY KEY (id)")
            connection.execute("UPDATE rekeyed SET n = 200 WHERE id = 11")
    wait_equal(live, "public.rekeyed")


def test_the_columns_of_a_key_in_another_order_are_the_same_key(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE turned (a integer, b integer, n integer, PRIMARY KEY (a, b))")
        connection.execute("INSERT INTO turned VALUES (1, 2, 0), (3, 4, 0)")
        live.wait_published()
        connection.execute("ALTER TABLE turned DROP CONSTRAINT turned_pkey, ADD PRIMARY KEY (b, a)")
        connection.execute("UPDATE turned SET n = 1 WHERE a = 1")
        connection.execute("DELETE FROM turned WHERE a = 3")
    live.wait_mirrored()
    keys = {record.key for record in live.records("public.turned")}
    assert keys == {b'{"a":1,"b":2}', b'{"a":3,"b":4}'}
    assert live.replica.execute("SELECT * FROM turned") == [(1, 2, 1)]


def test_a_replica_identity_index_and_a_configured_key(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE indexed (id integer PRIMARY KEY, code text NOT NULL UNIQUE, note text)")
        connection.execute("CREATE TABLE by_choice (code text, note text); ALTER TABLE by_choice REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO indexed SELECT i, 'c' || i, 'n' FROM generate_series(1, 9) i")
        connection.execute("INSERT INTO by_choice SELECT 'c' || i, 'n' FROM generate_series(1, 9) i")
        live.wait_published()
        connection.execute("ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code_key")
        connection.execute("UPDATE indexed SET code = 'moved' WHERE id = 1")
        connection.execute("DELETE FROM indexed WHERE id = 2")
        connection.execute("UPDATE by_choice SET code = 'moved' WHERE code = 'c1'")
    with pinned(live.source.dsn) as source:
        shapes = [describe(source, f"public.{table}", ("code",)) for table in ("indexed", "by_choice")]
    wait_equal(live, *shapes)


def test_dropped_and_made_again(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE phoenix (id integer PRIMARY KEY, note text)")
        connection.execute("INSERT INTO phoenix SELECT i, 'old' FROM generate_series(1, 9) i")
        live.assert_equal("public.phoenix")
        with connection.transaction():
            connection.execute("DROP TABLE phoenix")
            connection.execute("CREATE TABLE phoenix (id integer PRIMARY KEY, note text)")
            connection.execute("INSERT INTO phoenix SELECT i, 'new' FROM generate_series(5, 6) i")
    wait_equal(live, "public.phoenix")
    assert "another table has taken this name" in live.bridge.said()


def test_two_tables_swap_their_names(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE shop (id integer PRIMARY KEY, n integer)")
        connection.execute("CREATE TABLE shop_new (id integer PRIMARY KEY, n integer, extra text)")
        connection.execute("INSERT INTO shop SELECT i, i FROM generate_series(1, 9) i")
        connection.execute("INSERT INTO shop_new SELECT i, i, 'x' FROM generate_series(5, 20) i")
        live.wait_published()
        connection.execute(
            "BEGIN; ALTER TABLE shop RENAME TO shop_old; ALTER TABLE shop_new RENAME TO shop;"
            "INSERT INTO shop VALUES (100, 1, 'y'); INSERT INTO shop_old VALUES (100, 1); COMMIT"
        )
    wait_equal(live, "public.shop", "public.shop_old")


def test_renamed_moved_and_brought_back(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE nomad (id integer PRIMARY KEY, note text)")
        connection.execute("INSERT INTO nomad SELECT i, 'at home' FROM generate_series(1, 9) i")
        live.wait_mirrored()
        connection.execute("ALTER TABLE nomad SET SCHEMA shelf; DELETE FROM shelf.nomad WHERE id = 1")
        wait_equal(live, "shelf.nomad")
        assert "table was renamed: it has a topic of its own under the new name" in live.bridge.said()
        assert live.replica.execute("SELECT count(*) FROM public.nomad") == [(9,)]  # the old topic stays as it was
        connection.execute("ALTER TABLE shelf.nomad SET SCHEMA hidden; UPDATE hidden.nomad SET note = 'unseen'")
        live.wait_published()
        assert "table was renamed out of source.tables" in live.bridge.said()
        connection.execute("ALTER TABLE hidden.nomad SET SCHEMA public; UPDATE nomad SET note = 'back' WHERE id = 2")
    wait_equal(live, "public.nomad")
    assert "it was called hidden.nomad for a while" in live.bridge.said()


def test_another_name_for_a_while_behind_the_bridges_back(database: Database, deploy: Deploy) -> None:
    """When the stream comes to the changes under the other name, the catalog knows only the old one again."""
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 9) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    database.execute("UPDATE items SET n = 1 WHERE id = 1")
    deployment.wait_published()
    deployment.bridge.stop()
    database.execute("ALTER TABLE items RENAME TO away")
    database.execute("UPDATE away SET n = 2 WHERE id > 3; DELETE FROM away WHERE id = 2")
    database.execute("ALTER TABLE away RENAME TO items")
    deployment.start()
    deployment.wait_mirrored()
    wait_equal(deployment, "public.items")
    assert "it was called public.away for a while" in deployment.bridge.said()
    deployment.stop()


@pytest.mark.parametrize("is_killed", [False, True])
def test_two_tables_swap_their_names_and_have_them_back_at_once(
    database: Database, deploy: Deploy, is_killed: bool
) -> None:
    """No table changes after that, and the catalog is as it was: only what the stream has brought says otherwise.

    The bridge looks at the catalog every ten seconds, rarely while the names are exchanged.
    """
    with database.connect() as connection:
        for name in ("left_one", "right_one"):
            connection.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, n text)".encode())
            connection.execute(f"INSERT INTO {name} SELECT i, '{name}' FROM generate_series(1, 9) i".encode())
        deployment = deploy()
        deployment.start()
        deployment.wait_backfilled()
        connection.execute(SWAPPED)
        connection.execute("INSERT INTO right_one VALUES (100, 'of the left one'); DELETE FROM right_one WHERE id = 1")
        deployment.wait_published()
        connection.execute(SWAPPED)
    if is_killed:
        deployment.bridge.kill()
        deployment.start_bridge()
    wait_equal(deployment, "public.left_one", "public.right_one")
    deployment.stop()


def test_the_same_definition_again_has_the_same_fingerprint(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE twice (id integer PRIMARY KEY, n integer)")
        for statement in (
            "SELECT 1",
            "ALTER TABLE twice ADD COLUMN c text",
            "ALTER TABLE twice DROP COLUMN c",
            "ALTER TABLE twice RENAME COLUMN n TO m",
            "ALTER TABLE twice RENAME COLUMN m TO n",
            "ALTER TABLE twice REPLICA IDENTITY FULL",
            "ALTER TABLE twice ALTER COLUMN n SET DEFAULT 7",
            "ALTER TABLE twice DROP COLUMN n; ALTER TABLE twice ADD COLUMN n integer",
            "VACUUM twice",
        ):
            for part in statement.split("; "):
                connection.execute(part.encode())
            connection.execute(b"INSERT INTO twice (id) SELECT coalesce(max(id), 0) + 1 FROM twice")
    live.wait_mirrored()
    prints = [read_header(record.header)[2]["schema"] for record in live.records("public.twice")]
    assert len(prints) == 9
    assert len(set(prints)) == 3  # (id, n), (id, n, c), (id, m)
    definitions = [parse_schema(each.value or b"") for each in read_records(live.bootstrap, [schemas_topic(live.name)])]
    every = ([column.name for column in each.columns] for each in definitions if each.name == "twice")
    names = [each for each, _ in groupby(every)]  # again, once the bridge sees that n is another column
    assert names == [["id", "n"], ["id", "n", "c"], ["id", "n"], ["id", "m"], ["id", "n"]]  # each when it came into use


def test_a_new_key_stops_the_bridge_where_a_person_shall_decide(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, code text NOT NULL)")
    deployment = deploy()
    deployment.start()
    database.execute("INSERT INTO items SELECT i, 'c' || i FROM generate_series(1, 9) i")
    deployment.assert_equal("public.items")
    database.execute("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (code)")
    database.execute("DELETE FROM items WHERE id = 3")
    said = deployment.bridge.refusal(GapError.exit_code)
    assert "table public.items cannot go on in topic" in said
    assert "its key is now (code), but its topic was written with (id)" in said
    assert "remedy: set source.on_gap: rebackfill and restart" in said
    deployment.bridge.start()  # nor does a restart forget it
    assert "its key is now (code)" in deployment.bridge.refusal(GapError.exit_code)
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    wait_equal(deployment, "public.items")
    deployment.stop()
