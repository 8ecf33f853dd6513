"""Section compacted: the same records in a standard and in a compacted topic; the long form of `cdc learn standard`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from rich.console import Console

from cdc.lab.learn.classroom import Classroom
from cdc.lab.learn.page import LessonPage
from cdc.lab.learn.standard import COMPACTED, STANDARD, Pair, percentile
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Column, Section

ROUNDS = 5
UPDATES_PER_KEY = 20
READS = 2_000
DISK = (
    Column("standard_mb", "standard MB"),
    Column("before_mb", "compacted MB, before a pass"),
    Column("after_mb", "after it"),
    Column("broker_cpu_s", "broker CPU s until clean"),
)
BOTH = (
    Column("disk_mb", "disk MB"),
    Column("records", "records", 0),
    Column("rebuild_s", "rebuild s", 2),
    Column("rebuild_cpu_s", "CPU s", 2),
    Column("read_p50_ms", "read p50 ms", 2),
    Column("read_p99_ms", "p99", 2),
    Column("new_p50_ms", "new record p50 ms", 2),
    Column("new_p99_ms", "p99", 2),
)
NOTES = [
    "rebuild: every record from offset 0 folded into a dict; the two topics take turns",
    f"read: {READS:,} fetches at random offsets, one batch each; new record: written and read, one at a time",
]


def measure(bootstrap: str, broker_pid: int, records: int, runs: int) -> Iterator[Section]:
    """Disk after each of some rounds, then what readers of either topic get."""
    keys = records // UPDATES_PER_KEY
    with Classroom(bootstrap, LessonPage(Console(quiet=True)), _no_postgres) as room:
        pair = Pair(room, keys)
        disk = Section(f"Disk: {records:,} updates of {keys:,} keys, a pass of the cleaner after each fifth", DISK)
        for _ in range(ROUNDS):
            pair.write(records // ROUNDS)
            began = usage(broker_pid).cpu_s
            seen = pair.clean()
            spent = usage(broker_pid).cpu_s - began
            figures = {"standard_mb": seen.standard, "before_mb": seen.before, "after_mb": seen.after}
            disk.add(
                f"after {seen.written:,}", {**{key: size / 1e6 for key, size in figures.items()}, "broker_cpu_s": spent}
            )
        disk.notes.append("broker CPU: of the pass, and of reading the topic once to see that it is clean")
        yield disk
        yield _both(pair, runs)


def _both(pair: Pair, runs: int) -> Section:
    section = Section("The same state from a standard and from a compacted topic", BOTH, notes=list(NOTES))
    sizes = {which: pair.disk(which) / 1e6 for which in (STANDARD, COMPACTED)}
    # All of them before the new records, which a rebuild would read, too.
    every = [{which: pair.rebuild(which) for which in (STANDARD, COMPACTED)} for _ in range(runs)]
    for built in every:
        if len({(each.keys, each.state_bytes) for each in built.values()}) != 1:
            raise BenchmarkFailed("the two topics do not come to the same state")
        reads = pair.reads(READS)
        for which, rebuilt in built.items():
            new = pair.follow(which, READS // 4)
            section.add(
                which,
                {
                    "disk_mb": sizes[which],
                    "records": rebuilt.records,
                    "rebuild_s": rebuilt.seconds,
                    "rebuild_cpu_s": rebuilt.cpu_seconds,
                    "read_p50_ms": percentile(reads[which], 0.5) * 1000,
                    "read_p99_ms": percentile(reads[which], 0.99) * 1000,
                    "new_p50_ms": percentile(new, 0.5) * 1000,
                    "new_p99_ms": percentile(new, 0.99) * 1000,
                },
            )
    return section


def _no_postgres() -> NoReturn:
    raise BenchmarkFailed("nothing here needs a PostgreSQL")
