"""What waits between the threads that read and the one that publishes is bounded in bytes."""

from __future__ import annotations

from cdc.base.daemon.worker import Worker
from cdc.bridge.backfill.readers import Mailbox
from tests.support.waiting import eventually


def test_rows_of_any_size_wait_outside() -> None:
    box: Mailbox[str] = Mailbox(3, 100)
    accepted: list[bool] = []

    def putter() -> None:
        for name, size in (("a", 60), ("b", 40), ("too much", 1), ("larger than all", 1_000), ("last", 1)):
            accepted.append(box.put(name, size))

    worker = Worker(putter, name="putter")
    worker.start()
    eventually(lambda: len(accepted) == 2)
    assert box.take() == "a"
    eventually(lambda: len(accepted) == 3)
    assert [box.take(), box.take()] == ["b", "too much"]
    eventually(lambda: len(accepted) == 4)  # alone, for otherwise it never could
    box.close()
    worker.join()
    worker.check()
    assert accepted == [True, True, True, True, False]
    assert box.take() == "larger than all"
    assert box.take() is None


def test_many_small_ones_are_bounded_by_their_number() -> None:
    box: Mailbox[int] = Mailbox(2, 100)
    assert box.put(1, 0)
    assert box.put(2, 0)
    accepted: list[bool] = []
    late = Worker(lambda: accepted.append(box.put(3, 0)), name="late")
    late.start()
    assert box.take() == 1
    late.join()
    late.check()
    assert accepted == [True]
    assert [box.take(), box.take(), box.take()] == [2, 3, None]
