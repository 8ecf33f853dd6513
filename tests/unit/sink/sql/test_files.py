"""Files beside a replica in a file: the lock of the one sink, and what it tells."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from cdc.sink.sql.files import SideLock, StateFile


def test_one_session_at_a_time_has_the_lock_of_a_name(tmp_path: Path) -> None:
    replica = tmp_path / "shop.db"
    first, second, other = SideLock(replica, "shop"), SideLock(replica, "shop"), SideLock(replica, "other")
    assert not first.is_taken()
    assert not list(tmp_path.iterdir()), "a look makes no file"
    assert (first.take(), first.take(), second.take(), other.take()) == (True, True, False, True)
    assert second.is_taken()
    first.release()
    first.release()
    assert not second.is_taken()
    assert second.take()
    second.release()
    other.release()


def test_a_released_lock_can_be_taken_while_its_file_stays(tmp_path: Path) -> None:
    lock = SideLock(tmp_path / "shop.db", "shop")
    lock.take()
    with closing((tmp_path / "shop.db.shop.lock").open()):
        lock.release()
        assert lock.take()
    lock.release()


def test_the_state_that_was_told_last_is_read(tmp_path: Path) -> None:
    told = StateFile(tmp_path / "shop.db")
    assert told.read("shop") is None
    for lsn in ("0/1", "0/2"):
        told.write("shop", {"cut": {"lsn": lsn}, "tables": []})
        assert told.read("shop") == {"cut": {"lsn": lsn}, "tables": []}
    assert told.read("other") is None
    assert [each.name for each in tmp_path.iterdir()] == ["shop.db.shop.state"]
