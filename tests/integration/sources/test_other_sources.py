"""Sources that are not the usual one: other encodings, versions, rights, publications; with all kinds of tables.

Whatever the source is, folded topic and replica hold its rows, all of them, as it prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cdc.lab.stack import Kafka, PostgresMajor
from tests.support.deployment import deployed
from tests.support.servers import Database, Servers, drop_slots

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, n int, body text);
CREATE TABLE "{word} x" ("{word}" text, "b.C" int, "nöte" text, PRIMARY KEY ("b.C", "{word}"));
CREATE TABLE parent (id int PRIMARY KEY, n int, body text);
CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (parent);
CREATE TABLE parts (id int, region varchar(9), n int, body text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu', '{word}');
CREATE TABLE parts_us PARTITION OF parts FOR VALUES IN ('us');
CREATE TABLE emptied (id int PRIMARY KEY, doc jsonb, raw bytea, list text[]);
ALTER TABLE plain ALTER body SET STORAGE EXTERNAL; ALTER TABLE parent ALTER body SET STORAGE EXTERNAL;
ALTER TABLE heir ALTER body SET STORAGE EXTERNAL; ALTER TABLE parts_eu ALTER body SET STORAGE EXTERNAL;
"""
ROWS = """
INSERT INTO plain SELECT i, 0, repeat('{word}', 2000) FROM generate_series({start}, {start} + 9) i;
INSERT INTO "{word} x" SELECT '{word} ' || i, i, '{text}' FROM generate_series({start}, {start} + 9) i;
INSERT INTO parent SELECT i, 0, repeat('p', 5000) FROM generate_series({start}, {start} + 9) i;
INSERT INTO heir SELECT i, 0, repeat('h', 5000) FROM generate_series({start}, {start} + 9) i;
INSERT INTO parts SELECT i, (ARRAY['eu', 'us', '{word}'])[i % 3 + 1], 0, repeat('{word}', 2000)
  FROM generate_series({start}, {start} + 9) i;
INSERT INTO emptied SELECT i, jsonb_build_object('{word}', '{text}'), '\\x00ff', ARRAY['{text}', NULL, '']
  FROM generate_series({start}, {start} + 9) i;
"""
CHANGES = """
UPDATE plain SET n = n + 1 WHERE id % 2 = 0;
UPDATE ONLY parent SET n = 5 WHERE id % 3 = 0;
UPDATE heir SET n = 7 WHERE id % 2 = 0;
UPDATE parts SET n = n + 1 WHERE region = '{word}';
UPDATE parts SET region = 'us' WHERE id IN (3, 13);
UPDATE "{word} x" SET "{word}" = "{word}" || '{text}' WHERE "b.C" % 4 = 0;
DELETE FROM "{word} x" WHERE "b.C" % 5 = 0;
DELETE FROM ONLY parent WHERE id % 5 = 0;
"""
NAMES = ("plain", "{word} x", "parent", "heir", "parts", "emptied")


@dataclass(frozen=True)
class Source:
    """What is unusual; ``word`` and ``text`` hold characters that its encoding has."""

    major: PostgresMajor
    encoding: str
    word: str
    text: str
    is_secured: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def sql(self, text: str, start: int = 0) -> str:
        """With its words."""
        return text.replace("{word}", self.word).replace("{text}", self.text).replace("{start}", str(start))


SOURCES = {
    "latin1_on_14": Source(14, "LATIN1", "señor", "Grüße, ça va? ½"),
    "euc_jp_under_rls": Source(16, "EUC_JP", "注文", "東京都 カナ", is_secured=True),
    "sql_ascii_all_tables": Source(18, "SQL_ASCII", "čeština", "żółw ☕", settings={"publication_mode": "all_tables"}),
}


@contextmanager
def database_of(servers: Servers, source: Source) -> Iterator[Database]:
    """A database in the source's encoding, and a role of its name that owns what is in it."""
    server = servers.of(source.major)
    name = f"t_{source.encoding.lower()}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN REPLICATION BYPASSRLS")
        make = "CREATE DATABASE {} OWNER {} ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        admin.execute(sql.SQL(make).format(sql.Identifier(name), sql.Identifier(name), sql.Literal(source.encoding)))
    try:
        dsn = psycopg.conninfo.make_conninfo(server.dsn(name), client_encoding="UTF8")
        yield Database(name, psycopg.conninfo.make_conninfo(dsn, user=name) if source.is_secured else dsn)
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            drop_slots(admin, name)
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("name", SOURCES)
def test_topic_and_replica_hold_its_rows(
    name: str, servers: Servers, replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    source = SOURCES[name]
    tables = [f"public.{source.sql(table)}" for table in NAMES]
    with database_of(servers, source) as database:
        database.execute("CREATE SCHEMA IF NOT EXISTS public")
        database.execute(source.sql(TABLES))
        database.execute(source.sql(ROWS))
        if source.is_secured:
            for table in ("plain", "parent", "parts", "emptied"):
                database.execute(
                    f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
                    f"CREATE POLICY nobody ON {table} USING (false)"
                )
        with deployed(database, kafka.bootstrap, replica, tmp_path, {"source": source.settings}) as deployment:
            deployment.start()
            deployment.wait_backfilled(*tables)
            database.execute(source.sql(CHANGES))
            database.execute(source.sql(ROWS, 10))
            database.execute("TRUNCATE emptied")
            database.execute(source.sql(CHANGES))
            database.execute("INSERT INTO emptied VALUES (1, '{}', '', '{}')")
            deployment.assert_equal(*tables)
            assert database.execute("SELECT count(*) FROM ONLY parent") == [(16,)]
