"""Rows that a replica refuses stand aside, whichever database it is: the same promises for all of them.

PostgreSQL has its own way to keep them; the others share one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.base.config import Config
from cdc.contract.ports import BeginAnew, StoredRecord
from cdc.contract.record import SchemaColumn
from cdc.sink.dialects import open_replica
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaDatabase
from tests.integration.sink.sql.test_killed_steps import STEPS, killed_with, next_session
from tests.integration.sink.test_databases import (
    ITEMS,
    ORDERS,
    TRUE,
    DuckdbFile,
    MariadbReplica,
    PostgresServer,
    Replica,
    SqliteFile,
    apply,
    progress,
    record,
    session,
)
from tests.support.mariadb_server import MariadbServer, fresh_mariadb

BUDGET = 3
JOINING = TRUE._replace(joining=[ITEMS.topic, ORDERS.topic])


@pytest.fixture(params=["sqlite", "duckdb", "mariadb", "postgres"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replica]:
    """With a table ``items`` that takes no name of more than three characters."""
    if request.param == "mariadb":
        with fresh_mariadb(request.getfixturevalue("mariadb")) as database:
            yield picky(MariadbReplica(database))
    elif request.param == "postgres":
        yield picky(PostgresServer(request.getfixturevalue("database")))
    else:
        yield picky((SqliteFile if request.param == "sqlite" else DuckdbFile)(tmp_path / "shop.db"))


def picky(replica: Replica) -> Replica:
    with session(opened(replica), ITEMS, ORDERS) as writer:
        apply(writer, 10, record(1, "a", 0), record(2, "b", 1), record(1, "a", 0, ORDERS))
    replica.refuse_long_names()
    return replica


def tolerant(replica: Replica, budget: int) -> Config:
    config = replica.config()
    assert config.sink is not None
    sink = config.sink.model_dump(by_alias=True, exclude_unset=True)
    quarantine = {"public.items": {"budget": budget}}
    return config.model_copy(update={"sink": config.sink.model_validate({**sink, "quarantine": quarantine})})


def opened(replica: Replica, budget: int = BUDGET) -> ReplicaDatabase:
    return open_replica(tolerant(replica, budget), application_name="test")


def aside(database: ReplicaDatabase) -> list[int]:
    """The ids whose newest records the replica refuses, as its status counts them, too."""
    found = sorted(json.loads(each.key)["id"] for each in database.refused())
    assert [each.refused for each in database.status().tables] == [len(found), 0]
    return found


def states(database: ReplicaDatabase) -> list[str]:
    return [each.state for each in database.status().tables]


def test_the_table_goes_on_without_them_and_their_next_records_end_that(replica: Replica) -> None:
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        records = [record(2, "long", 2), record(3, "c", 3), record(4, "long too", 4), record(5, "e", 5)]
        apply(writer, 20, *records, record(6, "longer than three", 1, ORDERS))
        assert (states(database), aside(database)) == (["excepted", "exact"], [2, 4])
        assert replica.rows("items") == [(1, "a"), (3, "c"), (5, "e")]
        assert replica.rows("orders") == [(1, "a"), (6, "longer than three")]
        kept = {json.loads(each.key)["id"]: each for each in database.refused()}
        places = [(kept[number].topic, kept[number].partition, kept[number].offset) for number in (2, 4)]
        assert places == [(ITEMS.topic, 0, 2), (ITEMS.topic, 0, 4)]
        assert all(each.reason and each.since > 1_700_000_000_000_000 for each in kept.values())
        # One is mended, one is refused once more, and one that was good is refused
        apply(writer, 30, record(2, "B", 6), record(4, "too long", 7), record(5, "very long", 8))
        assert (states(database), aside(database)) == (["excepted", "exact"], [4, 5])
        assert replica.rows("items") == [(1, "a"), (2, "B"), (3, "c")]
        apply(writer, 40, record(4, None, 9), record(5, "f", 10))
        assert (states(database), aside(database)) == (["exact", "exact"], [])
        assert replica.rows("items") == [(1, "a"), (2, "B"), (3, "c"), (5, "f")]


def test_only_the_newest_record_of_a_key_counts(replica: Replica) -> None:
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2), record(3, "c", 3), record(2, "b2", 4), record(3, "too long", 5))
        assert aside(database) == [3]
    assert replica.rows("items") == [(1, "a"), (2, "b2")]


def test_the_next_session_knows_them(replica: Replica) -> None:
    with session(opened(replica), ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2), record(3, "long", 3))
    database = opened(replica)
    assert aside(database) == [2, 3]
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 30, record(2, "b", 4))
        assert (states(database), aside(database)) == (["excepted", "exact"], [3])
        apply(writer, 40, record(3, "c", 5))
        assert (states(database), aside(database)) == (["exact", "exact"], [])


def test_they_are_not_there_before_their_cut(replica: Replica) -> None:
    with session(opened(replica), ITEMS, ORDERS, resumes=True) as writer:
        writer.write([writer.prepare(ITEMS.topic, [record(2, "long", 2), record(3, "c", 3)])])
    database = opened(replica)
    assert aside(database) == []
    assert replica.rows("items") == [(1, "a"), (2, "b")]
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2), record(3, "c", 3))
        assert aside(database) == [2]


def test_one_more_than_the_budget_stops_the_table(replica: Replica) -> None:
    """Nothing of that cut is applied; the entries of former cuts stay."""
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2), record(3, "long", 3))
        with pytest.raises(RecordRejected) as refused:
            # One leaves, which makes room for two
            apply(writer, 30, record(3, "c", 4), *(record(n, "long", n) for n in (6, 7, 8)))
        assert f"{BUDGET} rows of the table are in quarantine already" in refused.value.reason
        assert refused.value.record is not None
        writer.stop_table(ITEMS.topic, refused.value.reason, refused.value.record)
    assert (states(database), aside(database)) == (["stopped", "exact"], [2, 3])
    assert replica.rows("items") == [(1, "a")]
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 40, record(3, "c", 4), *(record(n, "long", n) for n in (6, 7)))
        assert aside(database) == [2, 6, 7]


def test_a_table_without_a_quarantine_stops(replica: Replica) -> None:
    with session(open_replica(replica.config(), application_name="test"), ITEMS, ORDERS, resumes=True) as writer:
        with pytest.raises(RecordRejected) as refused:
            apply(writer, 20, record(2, "long", 2))
        assert refused.value.record == record(2, "long", 2)


def test_a_rebuild_judges_each_record_again(replica: Replica) -> None:
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2), record(3, "long", 3))
    with session(database, ITEMS, ORDERS, is_asked=True) as writer:
        assert aside(database) == []
        apply(writer, 30, record(1, "a", 0), record(2, "b", 1), record(3, "long", 3), standing=JOINING)
        assert (states(database)[0], aside(database)) == ("excepted", [3])
    assert replica.rows("items") == [(1, "a"), (2, "b")]


def test_a_table_that_is_emptied_has_no_entries(replica: Replica) -> None:
    rekeyed = replace(ITEMS, fingerprint="00000000000000cc", key=("name",))
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2))
    with session(database, ITEMS, rekeyed, ORDERS, resumes=True) as writer:
        assert aside(database) == []
        apply(writer, 30, record(5, "d", 3, rekeyed)._replace(key=b'{"name":"d"}'), standing=JOINING)
    assert replica.rows("items") == [(5, "d")]


def test_what_is_not_a_row_stands_aside_before_the_database_sees_it(replica: Replica) -> None:
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        broken = [
            record(2, "b", 2)._replace(value=b"["),
            record(3, "c", 3)._replace(value=b'{"id":3,"x":1}'),
            record(4, "long", 4),
            record(5, "e", 5),
        ]
        apply(writer, 20, *broken)
        assert (states(database)[0], aside(database)) == ("excepted", [2, 3, 4])
        assert replica.rows("items") == [(1, "a"), (5, "e")]
        apply(writer, 30, record(2, "b", 6), record(3, None, 7), record(4, "d", 8))
        assert (states(database)[0], aside(database)) == ("exact", [])
    assert replica.rows("items") == [(1, "a"), (2, "b"), (4, "d"), (5, "e")]


def test_many_among_many(replica: Replica) -> None:
    database = opened(replica, 1000)
    for generation in range(3):
        with session(database, ITEMS, ORDERS, resumes=True) as writer:
            names = {n: "long" if (n + generation) % 7 == 0 else str(generation) for n in range(1, 301)}
            apply(writer, 20 + generation, *(record(n, name, 10 + n + generation * 400) for n, name in names.items()))
        assert aside(database) == [n for n, name in names.items() if name == "long"]
        assert replica.rows("items") == [(n, name) for n, name in names.items() if name != "long"]


others = pytest.mark.parametrize("replica", ["sqlite", "duckdb", "mariadb"], indirect=True)
"""PostgreSQL has savepoints, so its session goes on."""


def applied(database: ReplicaDatabase, lsn: int, *parts: Sequence[StoredRecord]) -> int:
    """Applies a transaction that is larger than memory, part by part. Returns how many sessions that took."""
    for sessions in range(1, 10):
        with session(database, ITEMS, ORDERS, resumes=True) as writer, suppress(BeginAnew):
            for part in parts:
                writer.write([writer.prepare(ITEMS.topic, part)])
            writer.commit(progress(lsn), {(ITEMS.topic, 0): parts[-1][-1].offset + 1}, TRUE)
            return sessions
    raise AssertionError("it never came to its cut")


@others
def test_a_transaction_larger_than_memory_is_read_again(replica: Replica) -> None:
    database = opened(replica)
    parts = [
        [record(2, "long", 2), record(3, "c", 3)],
        [record(2, "b2", 4), record(4, "long", 5)],
        [record(5, "e", 6), record(2, "longer", 7), record(1, None, 8)],
    ]
    assert applied(database, 20, *parts) == 3
    assert (states(database)[0], aside(database)) == ("excepted", [2, 4])
    assert replica.rows("items") == [(3, "c"), (5, "e")]


@others
def test_what_a_session_was_told_goes_with_it(replica: Replica) -> None:
    """The next one asks the database again: somebody may have corrected the table meanwhile."""
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        writer.write([writer.prepare(ITEMS.topic, [record(3, "c", 2)])])
        with pytest.raises(BeginAnew):
            writer.write([writer.prepare(ITEMS.topic, [record(4, "long", 3)])])
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        batch = writer.prepare(ITEMS.topic, [record(4, "long", 3)])
        assert [each.record.offset for each in batch.refused] == [3]
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        assert not writer.prepare(ITEMS.topic, [record(4, "long", 3)]).refused


@others
def test_what_was_found_is_forgotten_at_the_next_cut(replica: Replica) -> None:
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(3, "long", 2))
        assert not writer.prepare(ITEMS.topic, [record(3, "long", 2)]).refused
        writer.write([writer.prepare(ITEMS.topic, [record(4, "d", 3)])])
        with pytest.raises(BeginAnew):
            writer.write([writer.prepare(ITEMS.topic, [record(5, "long", 4)])])
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        records = [record(3, "long", 2), record(4, "d", 3), record(5, "long", 4)]
        assert [each.record.offset for each in writer.prepare(ITEMS.topic, records).refused] == [4]


REKEYED = replace(ITEMS, fingerprint="00000000000000cc", key=("name",))


@others
@pytest.mark.parametrize("point", STEPS)
def test_killed_while_the_table_gets_another_key(replica: Replica, point: str) -> None:
    """No entry is left that has a former key: no record would ever end it."""
    with session(opened(replica), ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2))
    killed_with(tolerant(replica, BUDGET), point, [ITEMS, REKEYED], resumes=True)
    database = opened(replica)
    with next_session(database, ITEMS, REKEYED) as (writer, _):
        assert database.refused() == []
        apply(writer, 30, record(5, "d", 3, REKEYED)._replace(key=b'{"name":"d"}'), standing=JOINING)
        assert (states(database)[0], database.refused()) == ("exact", [])
    assert replica.rows("items") == [(5, "d")]


@others
@pytest.mark.parametrize(
    "point", ["sink.before_keys_made", "sink.before_apply", "sink.before_replica_commit", "sink.before_keys_dropped"]
)
def test_killed_while_the_table_is_rebuilt(replica: Replica, point: str) -> None:
    with session(opened(replica), ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2), record(3, "long", 3), record(4, "d", 4))
    again = [record(1, "a", 0), record(2, "long", 2), record(3, "c", 5), record(4, "long", 6)]
    killed_with(tolerant(replica, BUDGET), point, [ITEMS], again, is_asked=True)
    database = opened(replica)
    with next_session(database, ITEMS) as (writer, begins):
        if begins == "joined":
            assert {json.loads(each.key)["id"] for each in database.refused()} in ({2, 3}, {2, 4})
        apply(writer, 30, *again, standing=JOINING)
        assert (states(database)[0], sorted(each.offset for each in database.refused())) == ("excepted", [2, 6])
        apply(writer, 40, record(2, "b", 7), record(4, None, 8), standing=JOINING)
        assert (states(database)[0], database.refused()) == ("exact", [])
    assert replica.rows("items") == [(1, "a"), (2, "b"), (3, "c")]


@others
def test_a_topic_that_was_created_again_has_other_records(replica: Replica) -> None:
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        writer.write([writer.prepare(ITEMS.topic, [record(3, "c", 2)])])
        with pytest.raises(BeginAnew):
            writer.write([writer.prepare(ITEMS.topic, [record(4, "long", 3)])])
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        writer.begin(ITEMS.topic, "another id", ends=(0,), resumes=True, why_anew="other", is_asked=False, now=1.0)
        assert not writer.prepare(ITEMS.topic, [record(4, "d", 3)]).refused


def test_a_row_that_cannot_be_deleted_stops_the_table(tmp_path: Path) -> None:
    replica = picky(SqliteFile(tmp_path / "shop.db"))
    replica.execute("CREATE TRIGGER stays BEFORE DELETE ON items BEGIN SELECT RAISE(ABORT, 'it stays'); END")
    database = opened(replica)
    for bad in (record(2, "long", 2), record(2, None, 2)):
        with session(database, ITEMS, ORDERS, resumes=True) as writer:
            with pytest.raises(RecordRejected, match="it stays") as refused:
                apply(writer, 20, record(3, "c", 1), bad)
            assert refused.value.record is not None
            assert refused.value.record.offset == 2
    assert replica.rows("items") == [(1, "a"), (2, "b")]


def test_rows_that_are_only_refused_together_stop_the_table(tmp_path: Path) -> None:
    """Each part of the transaction would be taken alone: nobody can say which of them is at fault."""
    replica = picky(SqliteFile(tmp_path / "shop.db"))
    replica.execute("CREATE UNIQUE INDEX names ON items (name)")
    database = opened(replica)
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        writer.write([writer.prepare(ITEMS.topic, [record(3, "c", 2)])])
        with pytest.raises(Exception, match="only together with other rows of the same transaction"):
            writer.write([writer.prepare(ITEMS.topic, [record(4, "c", 3)])])
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(1, "x", 2), record(4, "a", 3), record(5, "b", 4), record(6, "long", 5))
        assert aside(database) == [5, 6]
    assert replica.rows("items") == [(1, "x"), (2, "b"), (4, "a")]


def test_a_value_that_a_type_does_not_hold(tmp_path: Path) -> None:
    sized = replace(ITEMS, columns=(*ITEMS.columns, SchemaColumn("size", "numeric(9,2)")))
    replica = DuckdbFile(tmp_path / "shop.duckdb")
    database = opened(replica)
    with session(database, sized, ORDERS) as writer:
        values = [b'{"id":%d,"name":"a","size":"%s"}' % each for each in ((1, b"1.50"), (2, b"NaN"), (3, b"3.00"))]
        apply(writer, 10, *(record(n, "a", n)._replace(value=value) for n, value in enumerate(values, 1)))
        assert (states(database), aside(database)) == (["excepted", "exact"], [2])
        assert "column 'size': 'NaN' is not a number that DECIMAL(9,2) holds" in database.refused()[0].reason
        apply(writer, 20, record(2, "a", 4)._replace(value=b'{"id":2,"name":"a","size":"2.50"}'))
        assert (states(database), aside(database)) == (["exact", "exact"], [])
    assert len(replica.rows("items")) == 3


def test_a_column_that_is_too_narrow_until_the_next_session(mariadb: MariadbServer) -> None:
    with fresh_mariadb(mariadb) as tables:
        replica = MariadbReplica(tables)
        name = "VARCHAR({}) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        replica.execute(f"CREATE TABLE items (id INT PRIMARY KEY, name {name.format(3)}) ENGINE = InnoDB")
        database = opened(replica)
        with session(database, ITEMS, ORDERS) as writer:
            apply(writer, 10, record(1, "a", 0), record(2, "long", 1))
            assert aside(database) == [2]
            assert "longer than the column, which holds 3" in database.refused()[0].reason
            replica.execute(f"ALTER TABLE items MODIFY name {name.format(4)}")
        with session(database, ITEMS, ORDERS, resumes=True) as writer:
            apply(writer, 20, record(2, "long", 2))
            assert (states(database), aside(database)) == (["exact", "exact"], [])
        assert replica.rows("items") == [(1, "a"), (2, "long")]


def test_a_replica_of_an_older_version_gets_the_table(tmp_path: Path) -> None:
    replica = picky(SqliteFile(tmp_path / "shop.db"))
    replica.execute("DROP TABLE cdc_quarantined_row")
    database = opened(replica)
    assert (aside(database), states(database)) == ([], ["exact", "exact"])
    with session(database, ITEMS, ORDERS, resumes=True) as writer:
        apply(writer, 20, record(2, "long", 2))
        assert aside(database) == [2]
