"""What the model of PostgreSQL promises, a real server keeps: both answer the same script alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from cdc.base.lsn import LSN
from cdc.bridge.capture import chunk, copy_both
from cdc.bridge.capture.chunk import flush_wal
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.standby import has_replayed, is_standby_of, refuse_standby, sight
from cdc.bridge.capture.timeline import left_at
from cdc.bridge.source.connect import connect
from cdc.bridge.source.slot import create_slot, identify, inspect_slot, wal_end
from cdc.bridge.source.slot_lock import lock_holder
from cdc.contract.change import Commit
from cdc.contract.snapshot import Snapshot
from tests.integration.world import postgres_stream_scripts, postgres_table_scripts
from tests.integration.world.postgres_observed import ITEMS, Script, adds, failure_of, ranked, told
from tests.integration.world.postgres_sides import (
    Obliging,
    RealSide,
    Side,
    Stream,
    WorldSide,
    done,
    prepare,
    reading,
    state_of,
)
from tests.support.held_commits import hold_commits
from tests.support.servers import Database, OwnStack
from tests.support.standby import Standby
from tests.support.waiting import eventually
from tests.world.postgres import WorldServer
from tests.world.postgres_sessions import PostgresWorld

pytestmark = pytest.mark.pg(16, matrix=False)  # the model is one of PostgreSQL 16

SEEDS = range(5)
SCRIPTS = {**postgres_stream_scripts.SCRIPTS, **postgres_table_scripts.SCRIPTS}
HELD_SCRIPTS = postgres_table_scripts.HELD_SCRIPTS


@contextlib.contextmanager
def the_world(seed: int) -> Iterator[WorldSide]:
    """The product's calls reach the model inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        turns = Obliging(seed)
        world = PostgresWorld(turns)
        patch.setattr(psycopg, "connect", world.connect)
        patch.setattr(copy_both, "select", world.select)
        patch.setattr(chunk, "select", world.select)
        server = world.add(WorldServer(turns))
        server.streamed_after = 7
        yield WorldSide(world, server, turns)


def seen_in_the_world(script: Script) -> list[Any]:
    """What a script sees on the model, whatever the seed is."""
    observed = []
    for seed in SEEDS:
        with the_world(seed) as side:
            observed.append(ranked(script(side)))
    assert all(each == observed[0] for each in observed)
    return observed[0]


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_keep_the_promise(name: str, database: Database) -> None:
    with contextlib.ExitStack() as stack:
        real = ranked(SCRIPTS[name](RealSide(database, stack)))
    assert real
    assert seen_in_the_world(SCRIPTS[name]) == real


@pytest.mark.parametrize("name", HELD_SCRIPTS)
def test_both_keep_a_promise_about_commits_that_hang(name: str, own_stack: OwnStack) -> None:
    dsn = own_stack.postgres().dsn()
    held: list[Any] = []
    with contextlib.ExitStack() as stack:

        def start(statements: Any) -> None:
            held.append(stack.enter_context(hold_commits(dsn)))
            held[0].start(statements)

        real = ranked(HELD_SCRIPTS[name](RealSide(Database("held", dsn), stack, start, lambda: held[0].release())))
    assert real
    assert seen_in_the_world(HELD_SCRIPTS[name]) == real


def seen_of_a_standby(primary: Side, standby: Side, replay: Any, promote: Any) -> list[Any]:
    """A standby follows, is behind, and takes over without the slot."""
    prepare(primary, ITEMS)
    done(primary, lambda writer: writer.insert("items", {"id": b"1"}))
    running = primary.begin()
    running.insert("items", {"id": b"2"})
    xid = primary.xid(running)
    with (
        connect(primary.connection, application_name="there") as there,
        connect(standby.connection, application_name="here") as here,
    ):
        replay()
        seen = sight(there)
        flush_wal(there)
        observed = [
            is_standby_of(here, there),
            is_standby_of(there, there),
            failure_of(lambda: refuse_standby(here)),
            failure_of(lambda: refuse_standby(there)),
            eventually(lambda: has_replayed(here, seen.lsn) or replay()),
            Snapshot.parse(seen.snapshot_text).sees(xid),
            wal_end(here),
            standby.rows("items"),
            failure_of(lambda: has_replayed(there, seen.lsn)),
            identify(here) == identify(there),
        ]
        end = wal_end(there)
    running.commit()
    replay()
    observed += [standby.rows("items")]
    promote()
    with connect(standby.connection, application_name="here") as here:
        now = identify(here)
        walsender = CopyBoth(standby.connection, application_name="walsender")
        system = walsender.identify()
        walsender.close()
        left = left_at(standby.connection, now.timeline, 1)
        observed += [
            (now.timeline, system.timeline, system.system_identifier == now.system_identifier),
            inspect_slot(here, primary.slot),
            left is not None and end is not None and left > end,
            left_at(standby.connection, now.timeline, 7),
            failure_of(lambda: has_replayed(here, LSN(0))),
            create_slot(here, "another") > (left or 0),
        ]
    done(standby, lambda writer: writer.insert("items", {"id": b"3"}))
    return [*observed, standby.rows("items")]


def test_a_standby_follows_and_takes_over(own_stack: OwnStack) -> None:
    primary = own_stack.postgres()
    with Standby.of(primary) as standby, contextlib.ExitStack() as stack:
        first, second = (RealSide(Database("postgres", each.dsn()), stack) for each in (primary, standby))

        def promote() -> None:
            primary.kill()
            standby.promote()

        real = ranked(seen_of_a_standby(first, second, lambda: standby.wait_replayed(primary), promote))
    with the_world(0) as side:
        server = side.server.standby("standby")
        side.world.add(server)

        def take_over() -> None:
            side.server.go_away()
            server.promote()

        seen = seen_of_a_standby(
            side, WorldSide(side.world, server, side.turns), lambda: server.replay(side.server.flush_lsn), take_over
        )
    assert ranked(seen) == real


class Crash(NamedTuple):
    """What is done to a server: its slots are saved, it dies, and it starts again."""

    save: Callable[[], object]
    crash: Callable[[], object]
    again: Callable[[], object]


def seen_of_a_crash(side: Side, server: Crash) -> list[Any]:
    """A server dies in the middle of everything, and starts again."""
    prepare(side, ITEMS)
    stream = Stream(side)
    with connect(side.connection, application_name="look") as conn:
        ends = []
        for key in range(2):
            done(side, adds(key))
            last = stream.so_far()[-1]
            assert isinstance(last, Commit)
            ends.append(last.end_lsn)
            stream.confirm(last.end_lsn)
            if key == 0:
                server.save()
        before = identify(conn)
        running, prepared = side.begin(), side.begin()
        adds(2)(running)
        adds(3)(prepared)
        prepared.prepare("gid_crash")
        server.crash()
        observed: list[Any] = [
            failure_of(lambda: stream.follow(LSN(2**62)))[0],
            failure_of(lambda: wal_end(conn))[0],
            conn.closed,
            failure_of(lambda: connect(side.connection, application_name="look"))[0],
        ]
    stream.session.close()
    server.again()
    with connect(side.connection, application_name="look") as conn:
        state = state_of(conn, side.slot)
        observed += [
            identify(conn) == before,
            (state.active, state.confirmed_flush_lsn in ends, lock_holder(conn, side.slot)),
            side.rows("items"),
        ]
        other = side.begin()
        observed += [side.waits(other, lambda: adds(3)(other)), side.waits(other, lambda: adds(2)(other))]
        other.commit()
        side.commit_prepared("gid_crash")
    with reading(side, ends[1]) as stream:
        return [*observed, told(stream.so_far()), side.rows("items")]


def test_a_server_that_crashes_starts_again(own_stack: OwnStack) -> None:
    server = own_stack.postgres()
    with contextlib.ExitStack() as stack:
        real = RealSide(Database("postgres", server.dsn()), stack)

        def again() -> None:
            server.start()
            real.reach(Database("postgres", server.dsn()))

        def save() -> None:
            with psycopg.connect(server.dsn(), autocommit=True) as conn:
                conn.execute("CHECKPOINT")

        expected = ranked(seen_of_a_crash(real, Crash(save, server.kill, again)))
    with the_world(0) as side:
        model = side.server
        crash = Crash(lambda: model.slots[side.slot].save(), model.go_away, model.come_back)
        assert ranked(seen_of_a_crash(side, crash)) == expected
