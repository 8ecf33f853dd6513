"""One source transaction far larger than memory: bridge and sink stay below a stated ceiling.

``BIG_ROWS=5000000 pytest tests/fault/test_big_transaction.py`` is the run that docs/benchmarks.md quotes.
"""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.waiting import eventually

BRIDGE_CEILING_BYTES = 200 * 1024 * 1024
SINK_CEILING_BYTES = 300 * 1024 * 1024


@pytest.mark.timeout(1800)
def test_memory_stays_flat(database: Database, replica: Database, deploy: Deploy) -> None:
    rows = int(os.environ.get("BIG_ROWS", "200000"))
    database.execute("CREATE TABLE big (id bigint PRIMARY KEY, a integer, note text, tags text[], at timestamptz)")
    deployment = deploy()
    deployment.start()
    started = time.monotonic()
    database.execute(
        "INSERT INTO big SELECT i, i % 1000, 'row ' || md5(i::text), ARRAY['a', i::text], '2026-01-01'::timestamptz"
        f" + i * '1 s'::interval FROM generate_series(1, {rows}) i"
    )
    lsn, written_s = deployment.now(), time.monotonic() - started
    deployment.wait_published(lsn, timeout_s=900)
    published_s = time.monotonic() - started
    deployment.wait_mirrored(lsn, timeout_s=900)
    mirrored_s = time.monotonic() - started
    peaks = deployment.bridge.peak_rss_bytes(), deployment.sink.peak_rss_bytes()
    sys.stdout.write(
        f"{rows} rows in one transaction: written after {written_s:.1f} s, published {published_s:.1f} s, "
        f"mirrored {mirrored_s:.1f} s; peak RSS bridge {peaks[0] >> 20} MiB, sink {peaks[1] >> 20} MiB\n"
    )
    query = "SELECT count(*), sum(id), sum(hashtext(big::text)::bigint) FROM big"
    eventually(lambda: replica.execute(query) == database.execute(query), 60)
    assert peaks[0] < BRIDGE_CEILING_BYTES
    assert peaks[1] < SINK_CEILING_BYTES
    deployment.stop()
