"""The sink's own tables: created once, by whoever is first, and described as they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from cdc.sink.postgres import control
from cdc.sink.postgres.schema_version import upgrade
from cdc.sink.postgres.session import replica_engine
from tests.support.servers import Database


def engine_of(database: Database) -> sa.Engine:
    return replica_engine({"conninfo": database.dsn}, application_name="test")


def test_tables_are_as_described(database: Database) -> None:
    engine = engine_of(database)
    upgrade(engine)
    for table in (control.cut, control.partition_offset, control.mirrored_table):
        found = database.execute(
            "select column_name, is_nullable = 'YES', data_type from information_schema.columns "
            "where table_schema = 'cdc' and table_name = %s",
            [table.name],
        )
        described = [
            (column.name, column.nullable, str(column.type.compile(engine.dialect)).lower()) for column in table.columns
        ]
        assert sorted(found) == sorted(described)


def test_many_at_once(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: upgrade(engine_of(database)), range(4)))
    assert database.execute("select version_num from cdc.alembic_version") == [("0006",)]


def test_current_tables_need_no_right_to_create(database: Database) -> None:
    upgrade(engine_of(database))
    role = f"{database.name}_reader"
    database.execute(f"create role {role} login")
    try:
        database.execute(f"grant usage on schema cdc to {role}")
        database.execute(f"grant select on all tables in schema cdc to {role}")
        upgrade(engine_of(Database(database.name, database.dsn.replace("postgres@", f"{role}@", 1))))
    finally:
        database.execute(f"drop owned by {role}")
        database.execute(f"drop role {role}")
