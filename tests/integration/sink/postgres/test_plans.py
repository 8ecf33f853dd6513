"""What a batch costs depends on its own size, not on that of the replica table."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from psycopg import sql

from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.postgres.batch import TableStatements
from cdc.sink.postgres.session import replica_engine
from cdc.sink.postgres.tables import establish
from cdc.sink.replica import ReplicaName
from tests.support.servers import Database

KEY = (SchemaColumn("id", "bigint"), SchemaColumn("line", "integer"))
TABLE = TableSchema("0" * 16, "public", "t", "t.public.t", ("id", "line"), (*KEY, SchemaColumn("note", "text")))


@pytest.mark.pg(16, 18)
def test_a_few_deletes_do_not_read_the_whole_table(database: Database) -> None:
    """Nobody knows how many keys are staged, so the server takes them for thousands, and the table for small beside."""
    name = ReplicaName("public", "t")
    engine = replica_engine({"conninfo": database.dsn}, application_name="test")
    with engine.connect() as connection:
        statements = TableStatements(1, name, [TABLE], establish(connection, name, [TABLE])[0])
        connection.execute(sa.text("INSERT INTO public.t SELECT i, 1, 'note' FROM generate_series(1, 30000) i"))
        connection.execute(sa.text("ANALYZE public.t"))
        session = connection.connection.driver_connection
        assert session is not None
        for statement in statements.prepare:
            session.execute(statement)
        plan = "\n".join(row[0] for row in session.execute(sql.SQL("EXPLAIN ") + statements.delete))
    assert "Index Scan using t_pkey on t" in plan, plan
