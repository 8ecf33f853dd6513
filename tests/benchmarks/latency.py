"""Section latency: from a commit's return in the source to its row in the topic and in the replica, at a fixed load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import psycopg

from tests.benchmarks import workload
from tests.benchmarks.backfill import again_and_again
from tests.benchmarks.deployment import LEAST_MESSAGE_BYTES, Deployment, daemon
from tests.benchmarks.measure import Meter, percentile
from tests.benchmarks.meters import (
    GIVE_UP_S,
    Stamps,
    meter,
    receive,
    watch_replica,
    watch_topic,
    write_letters,
    write_load,
)
from tests.benchmarks.processes import BenchmarkFailed, Program, wait_until
from tests.benchmarks.replica import greatest_key
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers

RATES_PER_S = (500, 1000)
SLOWER = 10
"""So many times slower than asked may the load be; the title says what was reached."""

COLUMNS = (
    Column("p50_ms", "p50 ms"),
    Column("p90_ms", "p90 ms"),
    Column("p99_ms", "p99 ms"),
    Column("p99_9_ms", "p99.9 ms"),
    Column("max_ms", "max ms"),
    Column("samples", "samples", 0),
)
SPENT_COLUMNS = (Column("core_percent", "CPU % of a core"), Column("rss_mb", "peak RSS MB", 0))

NOTES = (
    "from the return of COMMIT in the writing session (synchronous_commit on) until a read_committed consumer has the "
    "record, or until a session that asks the replica for its greatest key every millisecond or so first sees the row",
    "the three meters and the servers share the machine with bridge and sink; their own CPU is part of the load",
)


class Archive(NamedTuple):
    """A table that is backfilled beside the load: how many rows it has, and whether it goes no faster than the sink."""

    rows: int
    waits: bool

    @property
    def kind(self) -> tuple[str, ...]:
        return "beside", "waits" if self.waits else "free"

    @property
    def told(self) -> str:
        how = "" if self.waits else " that do not wait for the sink"
        return f", beside backfills of a table of {self.rows:,} rows{how}"

    def add_to(self, deployment: Deployment) -> Deployment:
        return deployment._replace(tables=("public.orders", "public.archive"), waits=self.waits)

    def prepare(self, source: psycopg.Connection, replica_dsn: str) -> None:
        _publish(source, "archive (LIKE orders INCLUDING ALL)")
        workload.fill(source, "archive", self.rows)

    @contextmanager
    def running(self, deployment: Deployment) -> Iterator[None]:
        with again_and_again(deployment, "public.archive"):
            yield


class Letters(NamedTuple):
    """A table with rows that are updated beside the load, and whether topic and replica refuse some of them."""

    are_refused: bool

    @property
    def kind(self) -> tuple[str, ...]:
        return ("letters", "refused" if self.are_refused else "taken")

    @property
    def told(self) -> str:
        how = f", of which {ODD_PER_S} are refused by its topic and {ODD_PER_S} by its replica"
        return f", beside {LETTERS_PER_S} updates of another table a second{how if self.are_refused else ''}"

    def add_to(self, deployment: Deployment) -> Deployment:
        return deployment._replace(
            tables=("public.orders", "public.letters"),
            quarantine=("public.letters", LETTERS) if self.are_refused else None,
        )

    def prepare(self, source: psycopg.Connection, replica_dsn: str) -> None:
        columns = "(id int PRIMARY KEY, changes int, v int, body text)"
        _publish(source, f"letters {columns}")
        source.execute("INSERT INTO letters SELECT n, 0, 0, '' FROM generate_series(1, %s) n", [LETTERS])
        if self.are_refused:
            with workload.connect(replica_dsn) as replica:
                replica.execute(f"CREATE TABLE letters {columns.replace('v int', 'v int CHECK (v >= 0)')}".encode())

    @contextmanager
    def running(self, deployment: Deployment) -> Iterator[None]:
        with meter(write_letters, deployment.source_dsn, LETTERS_PER_S, _bodies()) as load:
            load.send("go")
            yield


LETTERS: Final = 200
LETTERS_PER_S: Final = 20
ODD_PER_S: Final = 1
_TOO_LONG: Final = LEAST_MESSAGE_BYTES + 50_000


def _bodies() -> list[tuple[int, int]]:
    """Value and length of each letter. By turns one may be too long for a topic, and one break a replica's check."""
    each = LETTERS_PER_S // ODD_PER_S
    found = [(0, 100)] * LETTERS
    found[each // 2 :: each] = [(0, _TOO_LONG)] * (LETTERS // each)
    found[::each] = [(-1, 100)] * (LETTERS // each)
    return found


def _publish(source: psycopg.Connection, table: str) -> None:
    source.execute(f"CREATE TABLE {table}".encode())
    source.execute(f"ALTER PUBLICATION {workload.PUBLICATION} ADD TABLE {table.split()[0]}".encode())


def measure(
    servers: Servers,
    seconds: int,
    rate_per_s: int,
    *,
    beside: Archive | Letters | None = None,
    delivery: str | None = None,
    name: str = "bench_latency",
) -> list[Section]:
    """Run bridge and sink under a load of single-row transactions for twice ``seconds``; the first half is not counted.

    ``beside`` it, a second table is backfilled again and again, or its rows are updated.

    So much warm-up because a new broker first runs its path for small transactions interpreted: in its first seconds it
    manages a fifth of the transactions that it does half a minute later.
    """
    name = "_".join([name, str(rate_per_s), *([] if beside is None else beside.kind), *filter(None, [delivery])])
    warm, last = seconds * rate_per_s, 2 * seconds * rate_per_s
    with ExitStack() as stack:
        source_dsn, source = stack.enter_context(workload.source(servers, name))
        replica_dsn = stack.enter_context(servers.database(f"{name}_replica"))
        deployment = Deployment(name, source_dsn, servers.bootstrap, replica_dsn, delivery=delivery)
        if beside is not None:
            deployment = beside.add_to(deployment)
            beside.prepare(source, replica_dsn)
        bridge = stack.enter_context(daemon("run", deployment, servers.directory))
        sink = stack.enter_context(daemon("sink", deployment, servers.directory))
        # Row 0 makes the bridge create the topic and the sink the table, before the meters look for them.
        workload.insert_rows(source, 0, 0)
        _wait_for_row(replica_dsn, bridge, sink)
        others = stack.enter_context(ExitStack())
        if beside is not None:
            others.enter_context(beside.running(deployment))
        topic_meter = stack.enter_context(meter(watch_topic, servers.bootstrap, deployment.topic, last))
        replica_meter = stack.enter_context(meter(watch_replica, replica_dsn, last))
        load = stack.enter_context(meter(write_load, source_dsn, last, rate_per_s))
        spent = stack.enter_context(Meter())
        load.send("go")
        load.poll(seconds)
        watched = {"bridge": bridge.pid, "sink": sink.pid, "broker": servers.broker_pid}
        start = time.perf_counter()
        for pid in watched.values():
            spent.watch(pid)
        committed = receive(load, "commit times", timeout_s=SLOWER * seconds + GIVE_UP_S)
        wall_s = time.perf_counter() - start
        resources = Section("Spent at that load", SPENT_COLUMNS)
        for process, pid in watched.items():
            cpu_s, rss_mb, _ = spent.spent(pid)
            resources.add(process, {"core_percent": 100 * cpu_s / wall_s, "rss_mb": rss_mb})
        in_topic = receive(topic_meter, "record times", timeout_s=2 * GIVE_UP_S)
        others.close()  # backfills are faster than any replica takes rows
        in_replica = receive(replica_meter, "row times", timeout_s=10 * GIVE_UP_S)
        bridge.drain()
        sink.drain()
    others_told = "" if beside is None else beside.told
    delivered = f", delivery: {delivery}" if delivery else ""
    section = Section(_title(committed, seconds, rate_per_s) + others_told + delivered, COLUMNS, notes=list(NOTES))
    section.add("commit → topic", _figures(committed, in_topic, warm))
    section.add("commit → replica", _figures(committed, in_replica, warm))
    return [section, resources]


def _wait_for_row(replica_dsn: str, *running: Program) -> None:
    """Until the replica has a row, as long as bridge and sink run."""
    with workload.connect(replica_dsn) as replica:

        def there() -> bool:
            for each in running:
                each.must_run()
            return greatest_key(replica) is not None

        wait_until(there, "the first row to reach the replica")


def _reached_per_s(committed: Stamps) -> float:
    return (len(committed) - 1) * 1e9 / (max(committed.values()) - min(committed.values()))


def _title(committed: Stamps, seconds: int, rate_per_s: int) -> str:
    return (
        f"Latency: single-row transactions, {rate_per_s}/s asked and {_reached_per_s(committed):.0f}/s reached, "
        f"{seconds} s after as long a warm-up"
    )


def _figures(committed: Stamps, seen: Stamps, warm: int) -> Figures:
    """Percentiles over every row after the warm-up.

    Raises:
        BenchmarkFailed: a row was never seen.
    """
    missing = committed.keys() - seen.keys()
    if missing:
        raise BenchmarkFailed(f"{len(missing)} of {len(committed)} rows were never seen, e.g. id {min(missing)}")
    ordered = sorted((seen[key] - stamp) / 1e6 for key, stamp in committed.items() if key > warm)
    return {
        "p50_ms": percentile(ordered, 50),
        "p90_ms": percentile(ordered, 90),
        "p99_ms": percentile(ordered, 99),
        "p99_9_ms": percentile(ordered, 99.9),
        "max_ms": ordered[-1],
        "samples": len(ordered),
        "reached_per_s": _reached_per_s(committed),
    }
