"""What a role or a database may have set changes no value, and cuts nothing short."""

from __future__ import annotations

import pytest

from cdc.base.config import Config
from cdc.base.pgsettings import READING, WRITING, startup_options
from cdc.sink.postgres.session import replica_session
from tests.integration.sink.postgres.conftest import running
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter

HOSTILE = [
    "default_transaction_read_only = on", "array_nulls = off", "xmloption = document", "lock_timeout = 1",
    "statement_timeout = 1", "idle_in_transaction_session_timeout = 1", "idle_session_timeout = 1",
    "DateStyle = 'German'", "extra_float_digits = 0", "default_transaction_isolation = 'serializable'",
]  # fmt: skip


@pytest.mark.pg(16, 18)
def test_replica_made_by_pg_dump_under_hostile_defaults(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    """An identity that is GENERATED ALWAYS takes no UPDATE; a generated column takes nothing at all."""
    with database.connect() as admin:
        admin.execute(
            "create table t (id int4 primary key, n int4 generated always as identity, v text[], "
            "twice int4 generated always as (id * 2) stored)"
        )
        newer = ["transaction_timeout = 500"] if admin.info.server_version >= 170000 else []
        for setting in [*HOSTILE, *newer]:
            admin.execute(f"alter database {database.name} set {setting}".encode())
    table = topics.table("t", id="int4", n="int4", v="text[]", twice="int4")
    row = {"v": ["a", None]}
    with running(config, database) as mirror:
        with topics.kafka_transaction():
            topics.define(table)
            for number in (1, 2, 3):
                topics.upsert(table, {"id": number, "n": number, **row}, 10, number)
            topics.progress(11)
        mirror.wait_for_cut(11)
        with topics.kafka_transaction():
            topics.upsert(table, {"id": 1, "n": 1, "v": ["b"]}, 20, 1)
            topics.upsert(table, {"id": 2, "n": 20, **row}, 20, 2)
            topics.progress(21)
        mirror.wait_for_cut(21)
    with database.connect(options=startup_options(WRITING)) as there:
        assert there.execute("select state, reason from cdc.mirrored_table").fetchall() == [("exact", None)]
        assert there.execute("select id, n, v, twice from t order by id").fetchall() == [
            (1, 1, ["b"], 2),
            (2, 20, ["a", None], 4),
            (3, 3, ["a", None], 6),
        ]
    with replica_session({"conninfo": database.dsn}, "settings") as session:
        names = [*READING, *WRITING, *(["transaction_timeout"] if newer else [])]
        shown = dict(
            session.execute("select name, setting from pg_settings where name = any (%s)", (names,)).fetchall()
        )
    wanted = {name: value.replace("ISO,YMD", "ISO, YMD") for name, value in {**READING, **WRITING}.items()}
    assert shown == {**wanted, **({"transaction_timeout": "0"} if newer else {})}
