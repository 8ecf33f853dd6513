"""``cdc check`` looks at the standby of ``snapshot.dsn`` as a backfill would use it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import connect
from cdc.bridge.source.preflight import Finding
from cdc.lab.stack import Postgres
from cdc.lab.stack.embedded import free_port
from cdc.ops.status.standby_checks import check_standby
from tests.integration.ops.status.preflighting import config, mend, troubles
from tests.support.servers import Database, OwnStack
from tests.support.standby import Standby


@pytest.fixture
def standby(own_stack: OwnStack) -> Iterator[tuple[str, Standby]]:
    """The source's DSN, with a table in it, and its standby, which has the table."""
    primary = own_stack.postgres()
    with psycopg.connect(primary.dsn(), autocommit=True) as conn:
        conn.execute("CREATE ROLE reader LOGIN; CREATE TABLE public.t (id int PRIMARY KEY)")
    with Standby.of(primary, {"hot_standby_feedback": "off"}) as server:
        server.wait_replayed(primary)
        yield primary.dsn(), server


def found(source: str, dsn: str) -> dict[str, Finding]:
    """By subject."""
    with connect({"conninfo": source}, application_name="test") as conn:
        tables = find_tables(conn, ["public.t"], (), {})
    findings = check_standby(config(source, snapshot={"dsn": dsn}), tables)
    assert len({each.subject for each in findings}) == len(findings), findings
    return {each.subject: each for each in findings}


@pytest.mark.pg(18, matrix=False)  # 14, 15 and 17 come without pg_basebackup
def test_a_standby_is_looked_at_as_a_backfill_would_use_it(standby: tuple[str, Standby]) -> None:
    source, server = standby
    dsn = server.dsn()
    fine = found(source, dsn)
    assert {subject: each.level for subject, each in fine.items()} == dict.fromkeys(
        ("standby connection", "standby", "standby conflicts", "standby rights"), "OK"
    )
    assert fine["standby"].text.startswith("of the source, ")
    assert "after 30s, replay cancels a conflicting query" in fine["standby conflicts"].text

    with psycopg.connect(dsn, autocommit=True) as there:
        there.execute("ALTER SYSTEM SET max_standby_streaming_delay = '5s'")
        there.execute("SELECT pg_reload_conf(), pg_wal_replay_pause()")
        warned = troubles(list(found(source, dsn).values()), "WARN")
        assert sorted(warned) == ["standby conflicts", "standby replay"]
        for each in warned.values():
            mend(there, each)
    assert troubles(list(found(source, dsn).values()), "WARN") == {}

    unread = found(source, f"{dsn}?user=reader")["standby table public.t"]
    assert unread.level == "FAIL"
    with psycopg.connect(source, autocommit=True) as primary:
        mend(primary, unread)


@pytest.mark.pg(16)
def test_what_is_no_standby_of_the_source(database: Database, other_postgres: Postgres) -> None:
    database.execute("CREATE TABLE public.t (id int PRIMARY KEY)")
    itself = found(database.dsn, database.dsn)["standby"]
    assert (itself.level, itself.text.partition(",")[0]) == ("WARN", "snapshot.dsn names the source itself")

    another = found(database.dsn, other_postgres.dsn())["standby"]
    assert another.level == "FAIL"
    assert "neither the source nor a standby of it" in another.text

    nowhere = found(database.dsn, f"postgresql://u@127.0.0.1:{free_port()}/d")["standby connection"]
    assert nowhere.level == "FAIL"
    assert "snapshot.dsn" in nowhere.remedy
    assert check_standby(config(database.dsn), ()) == []
