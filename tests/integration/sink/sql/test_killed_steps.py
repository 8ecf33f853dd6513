"""A sink is killed between the steps that change a table: the next one completes them, and calls nothing exact before.

MariaDB commits at each of these steps. Elsewhere they are part of a transaction, and the kill undoes them.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.base import crashpoints
from cdc.base.config import Config
from cdc.contract.ports import ReplicaWriter, StoredRecord
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.dialects import open_replica
from cdc.sink.replica import ReplicaDatabase
from tests.integration.sink.test_databases import (
    ITEMS,
    TRUE,
    DuckdbFile,
    MariadbReplica,
    Replica,
    SqliteFile,
    apply,
    record,
    session,
)
from tests.support.mariadb_server import fresh_mariadb
from tests.support.sampling import sampled
from tests.support.topic_writer import SOURCE
from tests.support.waiting import eventually

WIDER = replace(ITEMS, fingerprint="00000000000000cc", columns=(*ITEMS.columns, SchemaColumn("size", "int8")))
REKEYED = replace(ITEMS, fingerprint="00000000000000dd", key=("name",))
JOINING = TRUE._replace(joining=[ITEMS.topic])
STEPS = ("sink.before_table_changed", "sink.after_table_changed")
KEYS_STEPS = ("sink.before_keys_made", "sink.before_keys_dropped")


@pytest.fixture(params=sampled(["sqlite", "duckdb", "mariadb"], ["sqlite", "mariadb"]))
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replica]:
    if request.param == "sqlite":
        yield SqliteFile(tmp_path / "shop.db")
    elif request.param == "duckdb":
        yield DuckdbFile(tmp_path / "shop.duckdb")
    else:
        with fresh_mariadb(request.getfixturevalue("mariadb")) as database:
            yield MariadbReplica(database)


def killed(
    point: str, replica: Replica, *schemas: TableSchema, records: Sequence[StoredRecord] = (), **how: bool
) -> None:
    """Begins a session in a process that dies at a crash point, and applies records."""
    killed_with(replica.config(), point, schemas, records, **how)


def killed_with(
    config: Config, point: str, schemas: Sequence[TableSchema], records: Sequence[StoredRecord] = (), **how: bool
) -> None:
    """Likewise, with a configuration."""
    # Not a fork of this process: it has threads of libraries in C
    process = multiprocessing.get_context("forkserver").Process(
        target=armed_session, args=(point, config, schemas, records, how)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it never came to that point"


def armed_session(
    point: str, config: Config, schemas: Sequence[TableSchema], records: Sequence[StoredRecord], how: Mapping[str, bool]
) -> None:
    crashpoints.arm(point)
    with session(open_replica(config, application_name="test"), *schemas, **how) as writer:
        apply(writer, 200, *records, standing=JOINING)


def opened(replica: Replica) -> ReplicaDatabase:
    return open_replica(replica.config(), application_name="test")


@contextmanager
def next_session(database: ReplicaDatabase, *schemas: TableSchema) -> Iterator[tuple[ReplicaWriter[Any], str]]:
    """The session after a kill, which goes by what is stored; and how it begins the table."""
    database.upgrade()
    with closing(database.writer()) as writer:
        eventually(writer.lock)  # a server may still be ending the session of the dead process
        resumes = any(topic == ITEMS.topic for topic, _ in writer.restore().offsets)
        writer.meet_source(SOURCE)
        writer.learn(schemas)
        begins = writer.begin(
            ITEMS.topic, f"id of {ITEMS.topic}", ends=(0,), resumes=resumes, why_anew="", is_asked=False, now=1.0
        )
        yield writer, begins


@pytest.mark.parametrize("point", STEPS)
def test_a_table_that_was_being_made(replica: Replica, point: str) -> None:
    killed(point, replica, ITEMS)
    with next_session(opened(replica), ITEMS) as (writer, begins):
        assert begins == "anew"
        apply(writer, 100, record(1, "a", 0), standing=JOINING)
    assert replica.rows("items") == [(1, "a")]
    assert opened(replica).status().tables[0].state == "exact"


@pytest.mark.parametrize("point", STEPS)
def test_a_table_that_was_being_widened(replica: Replica, point: str) -> None:
    with session(opened(replica), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0))
    killed(point, replica, ITEMS, WIDER, resumes=True)
    with next_session(opened(replica), ITEMS, WIDER) as (writer, begins):
        assert begins == "joined"
        apply(writer, 200, record(2, "b", 1)._replace(value=b'{"id":2,"name":"b","size":5}'))
    assert replica.rows("items") == [(1, "a", None), (2, "b", 5)]


@pytest.mark.parametrize("point", STEPS)
def test_a_table_that_was_getting_another_key(replica: Replica, point: str) -> None:
    with session(opened(replica), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
    killed(point, replica, ITEMS, REKEYED, resumes=True)
    with next_session(opened(replica), ITEMS, REKEYED) as (writer, begins):
        assert begins != "joined"
        assert opened(replica).status().tables[0].state != "exact"
        new = record(5, "d", 2, REKEYED)._replace(key=b'{"name":"d"}')
        apply(writer, 200, new, standing=JOINING)
    assert replica.rows("items") == [(5, "d")]


@pytest.mark.parametrize("point", [*STEPS, KEYS_STEPS[0]])
@pytest.mark.parametrize("change", ["DROP TABLE {}.items", "ALTER TABLE {}.items DROP COLUMN name"])
def test_what_a_person_dropped_is_filled_again_after_a_kill(replica: Replica, change: str, point: str) -> None:
    with session(opened(replica), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
    replica.execute(change.format(replica.schema))
    killed(point, replica, ITEMS, resumes=True)
    with next_session(opened(replica), ITEMS) as (writer, begins):
        assert begins == "anew"
        assert opened(replica).status().tables[0].state == "rebuilding"
        apply(writer, 200, record(1, "a", 0), standing=JOINING)
    assert replica.rows("items") == [(1, "a")]
    assert opened(replica).status().tables[0].state == "exact"


def test_a_rebuild_that_was_asked_for_again_does_not_go_on_with_no_keys(replica: Replica) -> None:
    with session(opened(replica), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
    with session(opened(replica), ITEMS, is_asked=True) as writer:
        apply(writer, 200, record(3, "c", 0), standing=TRUE._replace(outside=[ITEMS.topic]))
    killed("sink.before_keys_made", replica, ITEMS, is_asked=True)
    with next_session(opened(replica), ITEMS) as (writer, begins):
        if begins == "anew":
            apply(writer, 300, record(3, "c", 0))
        apply(writer, 400, record(1, "z", 1), standing=JOINING)
    assert replica.rows("items") == [(1, "z"), (3, "c")]


def test_keys_of_a_rebuild_that_ended_do_not_stay(replica: Replica) -> None:
    with session(opened(replica), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
    killed("sink.before_keys_dropped", replica, ITEMS, records=[record(1, "z", 0)], is_asked=True)
    assert replica.rows("items") == [(1, "z")]
    with next_session(opened(replica), ITEMS) as (_, begins):
        assert begins == "joined"
    if isinstance(replica, MariadbReplica):
        assert not replica.database.execute("SHOW TABLES LIKE 'cdc\\_seen\\_%'")
