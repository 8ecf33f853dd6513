"""The lock that stands for the slot before the stream begins: one session has it, and it ends with that session."""

from __future__ import annotations

import pytest

from cdc.base.lsn import ZERO
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.source import slot_lock
from cdc.bridge.source.slot import create_slot
from cdc.bridge.source.slot_lock import lock_holder
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.waiting import eventually


def walsender(database: Database) -> CopyBoth:
    return CopyBoth({"conninfo": database.dsn}, application_name="cdc test")


def test_one_of_two_sessions_has_it_until_it_ends(database: Database) -> None:
    slot = unique("slot_")
    first, second = walsender(database), walsender(database)
    with database.connect() as conn:
        assert lock_holder(conn, slot) is None
        held = first.hold(slot)
        assert held is not None
        assert held.pid == first.backend_pid
        assert held.began
        assert first.hold(slot) == held, "it may ask again"
        assert second.hold(slot) is None
        assert second.hold(unique("another_")) is not None
        assert lock_holder(conn, slot) == held
        first.close()
        eventually(lambda: second.hold(slot) is not None)
        second.close()
        eventually(lambda: lock_holder(conn, slot) is None)


def test_the_session_that_streams_still_has_it(database: Database) -> None:
    slot, publication = unique("slot_"), unique("pub_")
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    database.execute(f"CREATE PUBLICATION {publication} FOR TABLE items")
    with database.connect() as conn:
        create_slot(conn, slot)
        session = walsender(database)
        held = session.hold(slot)
        session.start(slot, publication, ZERO)
        database.execute("INSERT INTO items VALUES (1)")
        eventually(lambda: session.read(10))
        assert lock_holder(conn, slot) == held
        session.close()


def test_who_stands_still_before_the_stream_loses_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_lock, "STANDSTILL_S", 1)
    slot, session = unique("slot_"), walsender(database)
    with database.connect() as conn:
        assert session.hold(slot) is not None
        eventually(lambda: lock_holder(conn, slot) is None)
    session.close()
