"""One slot drained by one client: by the bridge, by pg_recvlogical, by the decoder alone; and what that cost."""

from __future__ import annotations

import shutil
import time

import psycopg

from tests.benchmarks.deployment import TIMEOUT_S, Deployment, daemon, wait_until_published
from tests.benchmarks.measure import Meter, usage
from tests.benchmarks.processes import Program, program, wait_until
from tests.benchmarks.report import Figures
from tests.benchmarks.servers import Servers
from tests.benchmarks.workload import PUBLICATION, Backlog

DECODE_ALONE = """
SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, %s, NULL, 'proto_version', '1', 'publication_names', %s)
"""


def by_bridge(servers: Servers, conn: psycopg.Connection, deployment: Deployment, backlog: Backlog) -> Figures:
    """From START_REPLICATION until a committed reader has the progress record of the last commit."""
    with Meter() as meter, daemon("run", deployment, servers.directory) as bridge:
        walsender, start = streaming(conn, deployment.slot, bridge, meter)
        wait_until_published(deployment, bridge, backlog.end)
        spent = figures(time.perf_counter() - start, meter, bridge.pid, walsender, backlog.changes)
        bridge.drain()
    return spent


def recvlogical(servers: Servers) -> str | None:
    """The program, if it is here."""
    return servers.postgres_program("pg_recvlogical") or shutil.which("pg_recvlogical")


def by_recvlogical(
    servers: Servers, executable: str, dsn: str, conn: psycopg.Connection, slot: str, backlog: Backlog
) -> Figures:
    """From START_REPLICATION until the process has ended, behind the last commit."""
    argv = [executable, "--dbname", dsn, "--slot", slot, "--start", "--file", "/dev/null", "--no-loop"]
    argv += ["--endpos", str(backlog.end), "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"]
    with Meter() as meter, program("pg_recvlogical", argv, servers.directory) as client:
        walsender, start = streaming(conn, slot, client, meter)
        client.wait(TIMEOUT_S)
        return figures(time.perf_counter() - start, meter, client.pid, walsender, backlog.changes)


def by_decoder(conn: psycopg.Connection, slot: str, backlog: Backlog) -> Figures:
    """Inside the server: nothing is sent."""
    backend = conn.info.backend_pid
    before, start = usage(backend), time.perf_counter()
    conn.execute(DECODE_ALONE, [slot, str(backlog.end), PUBLICATION])
    wall_s = time.perf_counter() - start
    return {
        "wall_s": wall_s,
        "rate": backlog.changes / wall_s,
        "walsender_cpu_s": (usage(backend).cpu_s - before.cpu_s) * 1e6 / backlog.changes,
    }


def streaming(conn: psycopg.Connection, slot: str, client: Program, meter: Meter) -> tuple[int, float]:
    """Wait for START_REPLICATION on the slot. Returns the walsender's process id and the time it was seen."""
    active: list[int] = []

    def slot_active() -> bool:
        client.must_run()
        row = conn.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone()
        active.extend(pid for pid in row or () if pid is not None)
        return bool(active)

    wait_until(slot_active, f"{client.name} to stream from slot {slot}")
    start = time.perf_counter()
    meter.watch(client.pid)
    meter.watch(active[0])
    return active[0], start


def figures(wall_s: float, meter: Meter, client: int, walsender: int, changes: int) -> Figures:
    """A run's figures, CPU per million changes."""
    spent, per_million = meter.spent(client), 1e6 / changes
    return {
        "wall_s": wall_s,
        "core_wait_s": spent.core_wait_s,
        "rate": changes / wall_s,
        "cpu_s": spent.cpu_s * per_million,
        "cpu_s_with_start": meter.total_cpu_s(client) * per_million,
        "walsender_cpu_s": meter.spent(walsender).cpu_s * per_million,
        "rss_mb": spent.rss_mb,
    }
