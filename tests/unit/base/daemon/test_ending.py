"""How a process ends: when it is told to, also while a library keeps its main thread, and without threads that hang."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc.base.daemon.threads import Threads
from tests.support.waiting import eventually

HELD = """
import ctypes
from cdc.base.daemon import supervise
supervise.LONGEST_STOP_S = {limit}
supervise.stop_on_signals()
print("held", flush=True)
mutex = ctypes.create_string_buffer(256)
for _ in range(2):
    ctypes.CDLL(None).pthread_mutex_lock(mutex)  # the second one waits for ever, whatever signals come
"""
HUNG = """
import threading
from cdc.base.daemon.threads import Threads
threads, asked = Threads(2, "hung"), threading.Event()
threads.submit(lambda: (asked.set(), threading.Event().wait()))
asked.wait()
"""


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_second_signal_ends_a_process_whose_main_thread_is_held(number: signal.Signals) -> None:
    with started(HELD.format(limit=60)) as process:
        assert heard(process) == "held"
        process.send_signal(number)
        assert "stopping" in heard(process)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(30) == 128 + number


def test_a_process_that_does_not_stop_in_time_ends_by_itself() -> None:
    with started(HELD.format(limit=0.2)) as process:
        assert heard(process) == "held"
        process.terminate()
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "not stopped in time" in said


def test_a_thread_that_hangs_does_not_keep_its_process() -> None:
    with started(HUNG) as process:
        assert process.wait(30) == 0


def test_threads_answer_as_those_of_an_executor_do() -> None:
    threads = Threads(2, "test")
    assert [threads.submit(pow, 2, each).result(10) for each in range(5)] == [1, 2, 4, 8, 16]
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(10)
    threads.shutdown()
    with pytest.raises(RuntimeError, match="test"):
        threads.submit(pow, 2, 2)


def test_no_more_threads_than_allowed_and_no_more_than_there_is_to_do() -> None:
    threads, go = Threads(3, "test of a few"), threading.Event()

    def running() -> int:
        return sum(each.name == "test of a few" for each in threading.enumerate())

    for _ in range(4):
        threads.submit(pow, 2, 2).result(10)
    assert running() <= 2, "one that is done takes the next, unless it is not back yet"
    futures = [threads.submit(go.wait, 30) for _ in range(9)]
    assert running() == 3
    go.set()
    assert all(each.result(10) for each in futures)
    threads.shutdown()
    eventually(lambda: running() == 0)


def test_threads_that_nobody_uses_any_more_end() -> None:
    threads = Threads(1, "test of nobody")
    threads.submit(pow, 2, 2).result(10)
    del threads
    eventually(lambda: not any(each.name == "test of nobody" for each in threading.enumerate()))
