"""The processes of a latency measurement: the load, a reader of the topic, one of the replica, and others.

All stamp with the monotonic clock, which the processes of one machine share. Each sends ``READY`` through its pipe
and at the end its stamps: key → nanoseconds.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection

import psycopg

from tests.benchmarks import workload
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.topics import committed_reader, partitions

READY = "ready"
REPLICA_POLL_INTERVAL_S = 0.001
GIVE_UP_S = 30.0
_INSERT = "INSERT INTO orders SELECT made.* FROM bench_row(%s) made ON CONFLICT DO NOTHING"

Stamps = dict[int, int]


@contextmanager
def meter(work: Callable[..., Stamps], *arguments: object) -> Iterator[Connection]:
    """Run one of this module's functions in a process of its own; yields its pipe once it is ready."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_run, args=(work, there, *arguments), daemon=True)
    process.start()
    try:
        receive(here, READY, timeout_s=GIVE_UP_S)
        yield here
    finally:
        process.terminate()
        process.join()


def receive(pipe: Connection, what: str, *, timeout_s: float) -> Stamps:
    """The next object of a meter's pipe."""
    if not pipe.poll(timeout_s):
        raise BenchmarkFailed(f"a latency meter did not send its {what} within {timeout_s:.0f} s")
    received: Stamps = pipe.recv()
    return received


def _run(work: Callable[..., Stamps], pipe: Connection, *arguments: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(work(pipe, *arguments))


def write_load(pipe: Connection, dsn: str, last: int, per_second: int, first: int = 1) -> Stamps:
    """Insert rows ``first`` to ``last``, each a transaction, at a fixed pace from the moment something is received.

    If the server goes away, the row at hand is inserted when it is back, unless it is there.

    Returns:
        key → time at which its commit returned.
    """
    committed: Stamps = {}
    begun = 0

    def insert(cursor: psycopg.Cursor) -> None:
        nonlocal begun
        cursor.execute("SET synchronous_commit = on")
        if not begun:
            pipe.send(READY)
            pipe.recv()
            begun = time.monotonic_ns()
        for key in range(first + len(committed), last + 1):
            ahead_ns = begun + (key - first + 1) * 1_000_000_000 // per_second - time.monotonic_ns()
            if ahead_ns > 0:
                time.sleep(ahead_ns / 1e9)
            cursor.execute(_INSERT, [key], prepare=True)
            committed[key] = time.monotonic_ns()

    _in_sessions(dsn, insert)
    return committed


def _in_sessions(dsn: str, work: Callable[[psycopg.Cursor], None]) -> None:
    """Do the work in a session, and go on in another one whenever the server went away."""
    while True:
        with suppress(psycopg.OperationalError), workload.connect(dsn) as conn, conn.cursor() as cursor:
            return work(cursor)
        time.sleep(REPLICA_POLL_INTERVAL_S)


def write_letters(pipe: Connection, dsn: str, per_second: int, bodies: list[tuple[int, int]]) -> Stamps:
    """Update the rows of ``letters`` in turn, each in a transaction, until the process is ended.

    Args:
        pipe: says when to begin.
        dsn: the source.
        per_second: transactions.
        bodies: value and length of the text of row 1, 2, 3 and so on.
    """
    with workload.connect(dsn) as conn, conn.cursor() as cursor:
        pipe.send(READY)
        pipe.recv()
        start = time.monotonic_ns()
        for number in count():
            ahead_ns = start + (number + 1) * 1_000_000_000 // per_second - time.monotonic_ns()
            if ahead_ns > 0:
                time.sleep(ahead_ns / 1e9)
            key = number % len(bodies)
            value, length = bodies[key]
            update = "UPDATE letters SET changes = changes + 1, v = %s, body = repeat('x', %s) WHERE id = %s"
            cursor.execute(update, [value, length, key + 1], prepare=True)
    raise AssertionError("never reached")


def watch_topic(pipe: Connection, bootstrap: str, topic: str, last: int) -> Stamps:
    """Read the topic until rows 0 to ``last`` were seen or nothing came for ``GIVE_UP_S``.

    Returns:
        key → time at which a read_committed consumer had its record.
    """
    seen: Stamps = {}
    with closing(committed_reader(bootstrap)) as consumer:
        consumer.assign(partitions(bootstrap, topic))
        pipe.send(READY)
        while len(seen) <= last:
            message = consumer.poll(GIVE_UP_S)
            if message is None:
                break
            stamp, key = time.monotonic_ns(), message.key()
            if message.error() is None and key is not None:
                seen.setdefault(json.loads(key)["id"], stamp)
        seen.pop(0, None)
    return seen


def watch_replica(pipe: Connection, dsn: str, last: int) -> Stamps:
    """Ask the replica for its greatest key about every millisecond until it is ``last``.

    One session commits the rows in key order and the replica shows commit prefixes, so all keys up to the greatest are
    visible.

    Returns:
        key → time at which the answer that first covered it was there.
    """
    seen: Stamps = {}
    greatest, changed = 0, time.monotonic()
    pipe.send(READY)

    def watch(cursor: psycopg.Cursor) -> None:
        nonlocal greatest, changed
        while greatest < last and time.monotonic() - changed < GIVE_UP_S:
            row = cursor.execute("SELECT max(id) FROM orders", prepare=True).fetchone()
            stamp = time.monotonic_ns()
            if row is not None and row[0] > greatest:
                seen.update(dict.fromkeys(range(greatest + 1, row[0] + 1), stamp))
                greatest, changed = row[0], time.monotonic()
            time.sleep(REPLICA_POLL_INTERVAL_S)

    _in_sessions(dsn, watch)
    return seen
