"""Least privilege: roles with exactly what ``cdc grants`` prints do all the work, and each grant is missed by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdc.base.errors import ReplicaRefused, SourceRefused
from cdc.lab.stack import Kafka, Postgres
from tests.integration.security.pasting import cdc, refused_bridge, refused_sink, remedy
from tests.support.deployment import Deployment, deployed
from tests.support.servers import Database, fresh_database
from tests.support.waiting import eventually

TABLES = ("public.items", "sales.orders")
LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)"


@dataclass
class Guarded:
    """A deployment whose two roles have nothing but what ``cdc grants`` printed."""

    deployment: Deployment
    capture: str
    mirror: str

    def fill(self, text: str) -> str:
        """Names for the places in a case's text."""
        deployment = self.deployment
        return text.format(
            capture=self.capture,
            mirror=self.mirror,
            source=deployment.source.name,
            replica=deployment.replica.name,
            publication=deployment.slot(),
        )

    def grants(self, part: str) -> str:
        """What ``cdc grants`` prints."""
        printed = cdc("grants", part, "-c", self.deployment.config, "--admin", "user=postgres")
        assert printed.exit_code == 0, printed.output
        return printed.output


def only_granted(database: Database) -> None:
    database.execute(f'REVOKE ALL ON DATABASE "{database.name}" FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC')


def drop_role(role: str, *databases: Database) -> None:
    for database in databases:
        database.execute(f"DROP OWNED BY {role}")
    databases[0].execute(f"DROP ROLE {role}")


@pytest.fixture(scope="module")
def guarded(
    postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Not started yet. Nobody but superusers may do anything that was not granted."""
    with ExitStack() as stack:
        source, replica = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        capture, mirror = f"capture_{source.name}", f"mirror_{replica.name}"
        source.execute(
            "CREATE TABLE items (id integer PRIMARY KEY, note text, long text); CREATE SCHEMA sales;"
            "CREATE TABLE sales.orders (id integer PRIMARY KEY) PARTITION BY RANGE (id);"
            'CREATE TABLE sales."2026" PARTITION OF sales.orders FOR VALUES FROM (0) TO (100);'
            f"INSERT INTO items VALUES (0, 'before the slot', {LONG}); INSERT INTO sales.orders VALUES (1)"
        )
        for database in (source, replica):
            only_granted(database)
        deployment = stack.enter_context(
            deployed(
                source,
                kafka.bootstrap,
                replica,
                tmp_path_factory.mktemp("guarded"),
                {
                    "source": {
                        "dsn": source.dsn.replace("postgres@", f"{capture}@"),
                        "publication_mode": "disabled",
                        "tables": ["public.*", "sales.*"],
                    },
                    "sink": {"dsn": replica.dsn.replace("postgres@", f"{mirror}@")},
                },
            )
        )
        made = Guarded(deployment, capture, mirror)
        source.execute(made.grants("source"))
        replica.execute(made.grants("sink"))
        yield made
        deployment.close()
        source.execute(f"DROP PUBLICATION IF EXISTS {deployment.slot()}")
        drop_role(capture, source)
        drop_role(mirror, replica)


@pytest.fixture(autouse=True)
def restored(guarded: Guarded) -> Iterator[None]:
    """What one test takes away, and does not give back because it fails, the next one has again."""
    yield
    guarded.deployment.bridge.kill()
    guarded.deployment.sink.kill()
    source, replica = guarded.deployment.source, guarded.deployment.replica
    source.execute(f"ALTER ROLE {guarded.capture} NOBYPASSRLS; ALTER TABLE items DISABLE ROW LEVEL SECURITY")
    source.execute(guarded.grants("source"))
    replica.execute(guarded.grants("sink"))


def test_nobody_is_let_in_before_the_grants(guarded: Guarded) -> None:
    """The other tests show something only if these databases give nothing away by themselves."""
    for database in (guarded.deployment.source, guarded.deployment.replica):
        found = database.execute(
            "SELECT count(*) FROM pg_database WHERE datname = current_database() AND EXISTS"
            " (SELECT FROM aclexplode(datacl) WHERE grantee = 0)"
        )
        assert found == [(0,)]


CAPTURE = [
    pytest.param(
        'ALTER ROLE "{capture}" NOLOGIN',
        "is not permitted to log in",
        'ALTER ROLE "{capture}" LOGIN;',
        id="login",
    ),
    pytest.param(
        'ALTER ROLE "{capture}" NOREPLICATION',
        "PostgreSQL refuses {capture}@",
        'ALTER ROLE "{capture}" REPLICATION;',
        id="replication",
    ),
    pytest.param(
        'REVOKE CONNECT ON DATABASE "{source}" FROM "{capture}"',
        'permission denied for database "{source}"',
        'GRANT CONNECT ON DATABASE "{source}" TO "{capture}";',
        id="connect",
    ),
    pytest.param(
        'REVOKE USAGE ON SCHEMA sales FROM "{capture}"',
        "table sales.orders may not be read by role {capture}",
        'GRANT USAGE ON SCHEMA "sales" TO "{capture}";',
        id="usage",
    ),
    pytest.param(
        'REVOKE SELECT ON items FROM "{capture}"',
        "table public.items may not be read by role {capture}",
        'GRANT SELECT ON "public"."items" TO "{capture}";',
        id="select",
    ),
    pytest.param(
        'REVOKE SELECT ON sales."2026" FROM "{capture}"',
        "table sales.orders may not be read by role {capture}",
        'GRANT SELECT ON "sales"."2026" TO "{capture}";',
        id="select on a partition",
    ),
    pytest.param(
        "DROP PUBLICATION {publication}",
        "publication {publication} does not exist",
        'CREATE PUBLICATION "{publication}" FOR TABLE ONLY "public"."items", ONLY "sales"."orders"'
        " WITH (publish_via_partition_root = true);",
        id="publication",
    ),
    pytest.param(
        "ALTER PUBLICATION {publication} DROP TABLE items",
        "publication {publication} misses public.items",
        'ALTER PUBLICATION "{publication}" ADD TABLE ONLY "public"."items";',
        id="table in the publication",
    ),
    pytest.param(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON items USING (id < 5)",
        "table public.items hides rows from role {capture} by row-level security",
        'ALTER ROLE "{capture}" BYPASSRLS;',
        id="row-level security",
    ),
]


@pytest.mark.parametrize(("taken", "words", "command"), CAPTURE)
def test_capture_without_one_grant(guarded: Guarded, taken: str, words: str, command: str) -> None:
    deployment, source = guarded.deployment, guarded.deployment.source
    source.execute(guarded.fill(taken))
    error = refused_bridge(deployment.config)
    assert isinstance(error, SourceRefused)
    assert guarded.fill(words) in error.message
    checked = cdc("check", "-c", deployment.config)
    assert checked.exit_code == SourceRefused.exit_code
    assert remedy(str(error)) == guarded.fill(command)
    assert guarded.fill(command) in checked.output
    source.execute(remedy(str(error)))
    checked = cdc("check", "-c", deployment.config)
    assert checked.exit_code == 0, checked.output


SINK = [
    pytest.param(
        'ALTER ROLE "{mirror}" NOLOGIN', "is not permitted to log in", 'ALTER ROLE "{mirror}" LOGIN;', id="login"
    ),
    pytest.param(
        'REVOKE CONNECT ON DATABASE "{replica}" FROM "{mirror}"',
        'permission denied for database "{replica}"',
        'GRANT CONNECT ON DATABASE "{replica}" TO "{mirror}";',
        id="connect",
    ),
    pytest.param(
        'REVOKE TEMPORARY ON DATABASE "{replica}" FROM "{mirror}"',
        "role {mirror} may not make temporary tables",
        'GRANT TEMPORARY ON DATABASE "{replica}" TO "{mirror}";',
        id="temporary",
    ),
    pytest.param(
        'REVOKE USAGE ON SCHEMA cdc FROM "{mirror}"',
        "schema cdc: role {mirror} may not use it and create tables in it",
        'GRANT USAGE, CREATE ON SCHEMA "cdc" TO "{mirror}";',
        id="usage",
    ),
    pytest.param(
        'REVOKE CREATE ON SCHEMA cdc FROM "{mirror}"',
        "schema cdc: role {mirror} may not use it and create tables in it",
        'GRANT USAGE, CREATE ON SCHEMA "cdc" TO "{mirror}";',
        id="create",
    ),
    pytest.param(
        "DROP SCHEMA cdc CASCADE",
        "schema cdc: is missing, and role {mirror} may not make it",
        'CREATE SCHEMA IF NOT EXISTS "cdc"; GRANT USAGE, CREATE ON SCHEMA "cdc" TO "{mirror}";',
        id="schema",
    ),
]


@pytest.mark.parametrize(("taken", "words", "command"), SINK)
def test_sink_without_one_grant(guarded: Guarded, taken: str, words: str, command: str) -> None:
    deployment, replica = guarded.deployment, guarded.deployment.replica
    replica.execute("DROP SCHEMA cdc CASCADE")  # made by a sink before, its tables would need no right to be made
    replica.execute(guarded.grants("sink"))
    replica.execute(guarded.fill(taken))
    error = refused_sink(deployment.config)
    assert isinstance(error, ReplicaRefused)
    assert guarded.fill(words) in error.message
    assert remedy(str(error)) == guarded.fill(command)
    checked = cdc("check", "-c", deployment.config)
    assert checked.exit_code == ReplicaRefused.exit_code
    assert guarded.fill(command) in checked.output
    replica.execute(remedy(str(error)))
    checked = cdc("check", "-c", deployment.config)
    assert checked.exit_code == 0, checked.output


def test_everything_works_with_just_these_grants(guarded: Guarded) -> None:
    deployment, source, replica = guarded.deployment, guarded.deployment.source, guarded.deployment.replica
    source.execute(guarded.grants("source"))  # twice does no harm
    deployment.start_bridge()
    replica.execute(f'REVOKE CREATE ON SCHEMA public FROM "{guarded.mirror}"')
    source.execute(f"INSERT INTO items VALUES (1, 'x', {LONG}), (2, 'y', {LONG}); INSERT INTO sales.orders VALUES (7)")
    deployment.wait_published()
    deployment.sink.start()
    deployment.sink.wait_said("table is stopped")  # one schema keeps only its own tables back
    said = deployment.sink.said()
    assert "permission denied for schema public" in said
    assert remedy(said) == f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{guarded.mirror}";'
    eventually(lambda: replica.execute("SELECT to_regclass('sales.orders') IS NOT NULL") == [(True,)])
    deployment.sink.stop()
    replica.execute(remedy(said))
    deployment.sink.start()
    source.execute("UPDATE items SET note = 'its long value is read again'")
    deployment.assert_equal(*TABLES)
    source.execute("TRUNCATE items; INSERT INTO items VALUES (3, 'after', 'short')")
    source.execute("DELETE FROM sales.orders WHERE id = 7")
    deployment.assert_equal(*TABLES)
    status = cdc("status", "-c", deployment.config)
    assert status.exit_code == 0, status.output
    deployment.stop()
    # With the slot there already it is the walsender that refuses.
    source.execute(f'ALTER ROLE "{guarded.capture}" NOREPLICATION')
    assert remedy(str(refused_bridge(deployment.config))) == f'ALTER ROLE "{guarded.capture}" REPLICATION;'


def test_rights_that_go_while_the_bridge_runs(guarded: Guarded) -> None:
    deployment, source = guarded.deployment, guarded.deployment.source
    cases = {
        f'REVOKE SELECT ON items FROM "{guarded.capture}"': f'GRANT SELECT ON "public"."items" TO "{guarded.capture}";',
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY": f'ALTER ROLE "{guarded.capture}" BYPASSRLS;',
    }
    for taken, command in cases.items():
        deployment.start_bridge()
        source.execute(f"DELETE FROM items; INSERT INTO items VALUES (9, 'x', {LONG})")
        deployment.wait_published()
        source.execute(taken)
        source.execute("UPDATE items SET note = 'its long value cannot be read'")
        said = deployment.bridge.refusal(SourceRefused.exit_code)
        assert "public.items" in said
        assert remedy(said) == command
        source.execute(command)
    deployment.start_bridge()
    deployment.assert_published("public.items")
    deployment.bridge.stop()


def test_grants_before_there_is_a_role(guarded: Guarded, tmp_path: Path) -> None:
    deployment = guarded.deployment
    config = tmp_path / "nobody.yaml"
    config.write_text(deployment.config.read_text().replace(guarded.capture, "nobody_yet"))
    refused = cdc("grants", "source", "-c", config).exception
    assert isinstance(refused, SourceRefused)
    assert "nobody_yet" in refused.message
    assert refused.remedy.endswith("--admin user=postgres")
    printed = cdc("grants", "source", "-c", config, "--admin", "user=postgres").output
    assert 'ALTER ROLE "nobody_yet" LOGIN REPLICATION;' in printed
    assert 'ALTER DEFAULT PRIVILEGES IN SCHEMA "public", "sales" GRANT SELECT ON TABLES TO "nobody_yet";' in printed


def test_a_password_does_not_go_on_the_command_line(guarded: Guarded) -> None:
    refused = cdc("grants", "source", "-c", guarded.deployment.config, "--admin", "user=postgres password=hunter2")
    assert "PGPASSWORD" in str(refused.exception)
    assert "hunter2" not in str(refused.exception)
