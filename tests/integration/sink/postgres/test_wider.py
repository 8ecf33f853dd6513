"""Columns of a replica table that the operator made, and that have another type than the source's."""

from __future__ import annotations

import re

import orjson
import psycopg
import pytest

from cdc.base.config import Config
from tests.integration.sink.postgres.conftest import running
from tests.integration.sink.postgres.test_tables import publish, state_of
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    ("wanted", "actual", "value", "printed"),
    [
        ("float4", "double precision", "1e+06", "1e+06"),
        ("bool", "text", "true", "t"),
        ("float8[]", "text", '["NaN"]', "{NaN}"),
    ],
)
def test_a_type_that_prints_values_in_another_way_is_refused(
    topics: TopicWriter, database: Database, config: Config, wanted: str, actual: str, value: str, printed: str
) -> None:
    """The table was called exact, and ``cdc reconcile`` called each such row different, or could not read it."""
    database.execute(f"create table t (id int4 primary key, v {actual})")
    table, good = topics.table("t", id="int4", v=wanted), topics.table("good", id="int4")
    publish(topics, 10, table, {"id": 1, "v": orjson.Fragment(value)})
    publish(topics, 20, good, {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
    if remedy := re.search("ALTER TABLE .*?;", state_of(database, table)[1] or ""):
        database.execute(remedy[0])
        with running(config, database):
            eventually(lambda: state_of(database, table)[0] == "exact")
    assert database.execute("select concat(v) from t") == [(printed,)]


def test_a_column_of_a_former_one_s_name_is_made_anew(topics: TopicWriter, database: Database, config: Config) -> None:
    """The source drops a column and adds another one of that name. The only command that was told cannot be run."""
    database.execute("create table t (id int4 primary key, v numeric)")
    table = topics.table("t", id="int4", v="timestamptz")
    publish(topics, 10, table, {"id": 1, "v": "2026-01-01 00:00:00+00"}, {"id": 2, "v": None})
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    first, second = re.findall("ALTER TABLE .*?;", state_of(database, table)[1] or "")
    with pytest.raises(psycopg.errors.CannotCoerce):
        database.execute(first)
    database.execute(second)
    with running(config, database):
        eventually(lambda: state_of(database, table)[0] == "exact")
    assert database.execute("select id, v = '2026-01-01Z' from t order by id") == [(1, True), (2, None)]
