"""The machine that lets programs take turns: time, threads, waits, death and standstill, all by one seed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import pytest

from cdc.base.daemon.threads import Threads
from cdc.base.daemon.worker import Worker
from tests.world.machine import START_S, Machine, Stuck
from tests.world.turns import Killed


def run(work: Callable[[Machine], None], seed: int = 1) -> Machine:
    """Run one program to its end, and raise what ended it."""
    machine = Machine(seed)
    with machine.plugged_in():
        program = machine.start("program", lambda: work(machine))
        machine.run_until(lambda: program.is_dead)
    if program.error is not None:
        raise program.error
    return machine


def test_a_wait_takes_virtual_time_only():
    began = time.monotonic()
    seen: list[float] = []

    def work(_machine: Machine) -> None:
        time.sleep(3600)
        threading.Event().wait(60)
        seen.extend((time.time() - START_S, time.monotonic() - START_S, time.time_ns() / 1e9 - START_S))

    run(work)
    assert seen == pytest.approx([3660.0] * 3)
    assert time.monotonic() - began < 60


def slow(seconds: int) -> int:
    time.sleep(seconds)
    return seconds


def test_threads_of_the_product_hand_over_results():
    def work(_machine: Machine) -> None:
        threads, executor, errors = Threads(2, "t"), ThreadPoolExecutor(1), Threads(1, "e")
        futures = [threads.submit(slow, each) for each in (3, 1, 2)]
        assert not wait(futures, 0.5).done
        assert [each.result() for each in futures] == [3, 1, 2]
        assert executor.submit(lambda: 7).result(5) == 7
        executor.shutdown(wait=True)
        with pytest.raises(ZeroDivisionError):
            errors.submit(lambda: 1 // 0).result()
        for each in (threads, errors):
            each.shutdown()

    run(work)


def test_a_worker_ends_and_says_what_ended_it():
    def fail() -> None:
        raise ValueError("why")

    def work(_machine: Machine) -> None:
        told = threading.Event()
        worker = Worker(fail, name="w", on_failure=told.set)
        worker.join()
        worker.start()
        assert told.wait(5)
        worker.join()
        assert not worker.is_alive
        with pytest.raises(ValueError, match="why"):
            worker.check()

    run(work)


def test_a_full_queue_waits_for_its_reader():
    def work(_machine: Machine) -> None:
        items: queue.Queue[int] = queue.Queue(1)

        def fill() -> None:
            for each in range(5):
                items.put(each)

        threading.Thread(target=fill).start()
        assert [items.get(timeout=10) for _ in range(5)] == list(range(5))
        with pytest.raises(queue.Empty):
            items.get(timeout=10)

    run(work)


def racing(machine: Machine, log: list[int]) -> None:
    def count(number: int) -> None:
        for _ in range(20):
            log.append(number)
            machine.turn()

    threads = [threading.Thread(target=count, args=(each,)) for each in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_the_seed_decides_the_order():
    orders: list[list[int]] = []
    for seed in (1, 1, 2):
        log: list[int] = []
        run(partial(racing, log=log), seed)
        orders.append(log)
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_nothing_that_a_killed_program_calls_has_an_effect():
    effects: list[str] = []
    machine = Machine(3)

    def call(effect: str) -> None:
        machine.turn()
        effects.append(effect)

    def work() -> None:
        threading.Thread(target=lambda: threading.Event().wait()).start()
        try:
            while True:
                call("alive")
        except Killed:
            call("after its death")
            raise
        finally:
            call("at its end")

    with machine.plugged_in():
        program = machine.start("program", work)
        machine.run_until(lambda: len(effects) > 10)
        machine.kill(program)
    assert program.is_dead
    assert set(effects) == {"alive"}


def test_a_frozen_program_goes_on_later():
    seen: list[float] = []
    machine = Machine(4)

    def work() -> None:
        for _ in range(3):
            time.sleep(1)
            seen.append(time.monotonic())

    with machine.plugged_in():
        program = machine.start("program", work)
        machine.run_until(lambda: len(seen) == 1)
        program.is_frozen = True
        other = machine.start("other", lambda: time.sleep(10))
        machine.run_until(lambda: other.is_dead)
        assert len(seen) == 1
        program.is_frozen = False
        machine.run_until(lambda: program.is_dead)
    assert seen[1] - seen[0] >= 10


def test_who_waits_for_ever_is_named():
    machine = Machine(5)

    def work() -> None:
        threading.Event().wait()

    with machine.plugged_in():
        program = machine.start("bridge", work)
        with pytest.raises(Stuck, match="bridge is alive, 1 threads"):
            machine.run_until(lambda: program.is_dead)
