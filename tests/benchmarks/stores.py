"""Section stores: what can keep a view's rows in a folder. Each contender in a process of its own; needs no servers.

Ours are measured as the view uses them; the others with as little around them as their Python packages allow.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from cdc.views.store.lmdb_store import LmdbStore
from cdc.views.store.memory import MemoryStore
from cdc.views.store.port import Item, Key, Store
from cdc.views.table.keys import order_of
from cdc.views.table.rows import pack
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Column, Figures, Section

BATCH = 20_000
READS = 100_000
PAGE = 1000
READERS = 2
BESIDE_S = 5.0
CATCH_UP_S = 0.02
SPACE = "rows/1/1"
COLUMNS = (
    Column("load", "loaded rows/s", 0),
    Column("load_cpu_us", "CPU µs/row", 2),
    Column("change_cpu_us", "changed CPU µs/row", 2),
    Column("point_us", "point read µs", 2),
    Column("scan", "scanned rows/s", 0),
    Column("beside", f"reads/s of {READERS} beside", 0),
    Column("written", "rows/s written beside", 0),
    Column("disk_mb", "disk MB", 0),
    Column("rss_mb", "peak RSS MB", 0),
)
NOTES = (
    f"rows of 250 bytes, their keys in random order; each {BATCH:,} are durable (fsync) before the next",
    "changed: a tenth of the rows again, at random; point read: one key, each in a read transaction of its own",
    f"scanned: pages of {PAGE:,} rows; beside: processes that read at random while this one goes on writing",
    "peak RSS of LMDB holds the pages of the file that the kernel caches and can take back",
)


class Contender(Protocol):
    """What is measured of each."""

    def write(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Durably, in one transaction."""

    def get(self, key: bytes) -> bytes | None:
        """As the last commit left it."""

    def scan(self, start: bytes, limit: int) -> int:
        """How many rows were read."""

    def close(self) -> None:
        """Let it go."""


class Ours:
    """A store of this project."""

    def __init__(self, store: Store, *, reads: bool) -> None:
        self._store = store
        if not reads and not store.lock():
            raise BenchmarkFailed("the store is locked")

    def write(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        transaction = self._store.begin()
        transaction.put(SPACE, [Item(Key(order, b""), value) for order, value in rows])
        transaction.commit()

    def get(self, key: bytes) -> bytes | None:
        keys = (Key(key, b""),)
        return self._store.read(lambda snapshot: snapshot.get(SPACE, keys))[0]

    def scan(self, start: bytes, limit: int) -> int:
        return len(self._store.read(lambda snapshot: snapshot.scan(SPACE, start, None, limit)))

    def close(self) -> None:
        self._store.close()


class Sqlite:
    """Of the standard library, with a write-ahead log."""

    def __init__(self, path: Path, *, reads: bool) -> None:
        path.mkdir(exist_ok=True)
        self._db = sqlite3.connect(path / "view.sqlite", isolation_level=None)
        if not reads:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA cache_size = -200000")

    def write(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO rows VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", rows)
        self._db.execute("COMMIT")

    def get(self, key: bytes) -> bytes | None:
        found = self._db.execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def scan(self, start: bytes, limit: int) -> int:
        return len(
            self._db.execute("SELECT * FROM rows WHERE key >= ? ORDER BY key LIMIT ?", (start, limit)).fetchall()
        )

    def close(self) -> None:
        self._db.close()


class Rocks:
    """RocksDB; processes beside the writer follow it as secondaries."""

    def __init__(self, path: Path, *, reads: bool) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        access = rocksdict.AccessType.secondary(tempfile.mkdtemp(prefix="bench-secondary-")) if reads else None
        self._batch = rocksdict.WriteBatch
        self._reads, self._catch_up_at = reads, 0.0
        self._db = rocksdict.Rdict(str(path), options, access_type=access or rocksdict.AccessType.read_write())
        durable = rocksdict.WriteOptions()
        durable.sync = True
        self._db.set_write_options(durable)

    def write(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        batch = self._batch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self._db.write(batch)

    def get(self, key: bytes) -> bytes | None:
        if self._reads and time.monotonic() >= self._catch_up_at:
            self._db.try_catch_up_with_primary()
            self._catch_up_at = time.monotonic() + CATCH_UP_S
        found: bytes | None = self._db.get(key)
        return found

    def scan(self, start: bytes, limit: int) -> int:
        count = 0
        for _ in self._db.items(from_key=start):
            count += 1
            if count == limit:
                break
        return count

    def close(self) -> None:
        self._db.close()


MAKERS: dict[str, Callable[..., Contender]] = {
    "LMDB": lambda path, reads: Ours(LmdbStore(path, read_only=reads), reads=reads),
    "RocksDB": lambda path, reads: Rocks(path, reads=reads),
    "SQLite": lambda path, reads: Sqlite(path, reads=reads),
    "memory": lambda path, reads: Ours(MemoryStore(), reads=reads),
}


def measure(rows: int, runs: int, say: Callable[[str], None]) -> Section:
    """All contenders in turns."""
    section = Section(f"Stores of {rows:,} rows", COLUMNS, ratio=("load_cpu_us", "LMDB"), notes=list(NOTES))
    if find_spec("rocksdict") is None:
        say("RocksDB is left out; to see it: pip install rocksdict")
    for _ in range(runs):
        for name in MAKERS:
            if name != "RocksDB" or find_spec("rocksdict") is not None:
                section.add(name, _elsewhere("measure", name, rows))
    return section


def _elsewhere(*arguments: object) -> Figures:
    command = [sys.executable, "-m", "tests.benchmarks.stores", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise BenchmarkFailed(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr[-2000:]}")
    figures: Figures = json.loads(ran.stdout)
    return figures


def _measured(name: str, rows: int) -> dict[str, float | None]:
    folder = Path(tempfile.mkdtemp(prefix="cdc-bench-store-"))
    try:
        contender = MAKERS[name](folder / "store", reads=False)
        figures = _alone(contender, rows)
        figures["disk_mb"] = sum(each.stat().st_blocks for each in (folder / "store").rglob("*")) * 512 / 1e6
        if name != "memory":
            figures |= _beside(contender, name, folder / "store", rows)
        contender.close()
        figures["rss_mb"] = usage(os.getpid()).rss_mb
        return figures
    finally:
        shutil.rmtree(folder)


def _alone(contender: Contender, rows: int) -> dict[str, float | None]:
    took, cpu_s = _write(contender, (_some(rows, first, min(BATCH, rows - first)) for first in range(0, rows, BATCH)))
    changes = rows // 10
    parts = (_some(rows, first * 7, min(BATCH, changes - first)) for first in range(0, changes, BATCH))
    _, changed_cpu_s = _write(contender, parts)
    orders = [order_of([number]) for number in random.Random(1).choices(range(rows), k=READS)]
    began_cpu = time.process_time()
    if not all(contender.get(order) for order in orders):
        raise BenchmarkFailed("a row is missing")
    point_cpu = time.process_time() - began_cpu
    began, seen = time.perf_counter(), 0
    for start in range(0, rows, PAGE):
        seen += contender.scan(order_of([start]), PAGE)
    if seen != rows:
        raise BenchmarkFailed(f"{seen:,} rows were found, and {rows:,} written")
    return {
        "load": rows / took,
        "load_cpu_us": cpu_s / rows * 1e6,
        "change_cpu_us": changed_cpu_s / changes * 1e6,
        "point_us": point_cpu / READS * 1e6,
        "scan": rows / (time.perf_counter() - began),
    }


def _beside(contender: Contender, name: str, path: Path, rows: int) -> dict[str, float | None]:
    command = [sys.executable, "-m", "tests.benchmarks.stores", "read", name, str(path), str(rows)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(READERS)]
    began, written, place = time.perf_counter(), 0, 0
    while any(reader.poll() is None for reader in readers):
        contender.write(_some(rows, place, BATCH // 10))
        written, place = written + BATCH // 10, (place + BATCH) % rows
    took = time.perf_counter() - began
    rates = [float(reader.communicate()[0]) for reader in readers]
    return {"beside": sum(rates), "written": written / took}


def _read(name: str, path: Path, rows: int) -> float:
    """Reads a second, for some seconds."""
    contender, chance = MAKERS[name](path, reads=True), random.Random()
    began, reads = time.perf_counter(), 0
    while time.perf_counter() - began < BESIDE_S:
        for _ in range(100):
            if contender.get(order_of([chance.randrange(rows)])) is None:
                raise BenchmarkFailed("a row is missing")
        reads += 100
    contender.close()
    return reads / (time.perf_counter() - began)


def _write(contender: Contender, batches: Iterator[list[tuple[bytes, bytes]]]) -> tuple[float, float]:
    """Seconds, and CPU seconds of all threads; to make the rows is not counted."""
    took = cpu_s = 0.0
    for batch in batches:
        began, began_cpu = time.perf_counter(), time.process_time()
        contender.write(batch)
        took, cpu_s = took + time.perf_counter() - began, cpu_s + time.process_time() - began_cpu
    return took, cpu_s


def _some(rows: int, first: int, count: int) -> list[tuple[bytes, bytes]]:
    """Each number below ``rows`` once, in an order that jumps about."""
    jump = next(each for each in range(int(rows * 0.618), rows) if math.gcd(each, rows) == 1)
    return [
        (order_of([number]), _row(number)) for number in (place * jump % rows for place in range(first, first + count))
    ]


def _row(number: int) -> bytes:
    key = b'{"id":%d}' % number
    text = random.Random(number).randbytes(40).hex().encode()  # JSON compresses to about half, too
    return pack(
        key, b'{"id":%d,"text":"%b%b"}' % (number, text, text[:70]), 3, number, b'"0/1925728"', 1795190486566123
    )


def main(what: str, name: str, *rest: str) -> None:
    """In a process of its own: so that memory and CPU are of one contender."""
    answer = _measured(name, int(rest[0])) if what == "measure" else _read(name, Path(rest[0]), int(rest[1]))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
