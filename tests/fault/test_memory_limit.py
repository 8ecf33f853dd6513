"""Bridge or sink gets too little memory for a row, and ends: nothing is lost or torn, and with more it goes on.

``test_big_transaction.py`` shows that what is planned suffices, whatever the size of a transaction.
"""

from __future__ import annotations

import random
import resource
import signal
from pathlib import Path
from typing import Final

import pytest

from cdc.lab.stack import Kafka
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import deployed
from tests.support.servers import Database
from tests.support.topic_audit import audit
from tests.support.under_load import under_load, wait_for_cuts
from tests.support.waiting import eventually

TOO_LITTLE_MB: Final = {"stream": 20, "backfill": 60}
"""More than it has at rest. A backfill begins threads, and the limit counts the addresses of their stacks."""
WIDE: Final = "INSERT INTO wide SELECT i, repeat(md5(i::text), 350000) FROM generate_series(1, 6) i"
"""Rows of 11 MB."""
WITHOUT_A_WORD: Final = (-signal.SIGABRT, -signal.SIGSEGV)
"""How libraries in C end a process that gets no memory."""


def limit(process: CdcProcess, more_mb: int) -> None:
    """Let a process have so much more than now."""
    assert process.pid is not None
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    has_kb = int(next(line for line in lines if line.startswith("VmData")).split()[1])
    resource.prlimit(process.pid, resource.RLIMIT_DATA, ((has_kb << 10) + (more_mb << 20), resource.RLIM_INFINITY))


@pytest.mark.parametrize("work", ["stream", pytest.param("backfill", marks=pytest.mark.long)])
@pytest.mark.parametrize("delivery", ["transactional", pytest.param("idempotent", marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["bridge", "sink"])
def test_with_too_little_memory_it_ends_and_with_more_it_goes_on(
    kafka: Kafka, database: Database, replica: Database, tmp_path: Path, victim: str, delivery: str, work: str
) -> None:
    database.execute("CREATE TABLE wide (id integer PRIMARY KEY, note text)")
    with (
        deployed(database, kafka.bootstrap, replica, tmp_path) as live,
        under_load(live, random.Random(1), delivery) as watcher,
    ):
        process = {"bridge": live.bridge, "sink": live.sink}[victim]
        if work == "backfill":
            database.execute(WIDE)
            live.wait_mirrored()
        wait_for_cuts(live, watcher)
        limit(process, TOO_LITTLE_MB[work])
        if work == "stream":
            database.execute(WIDE)
        else:
            live.command("backfill", "public.wide")
        eventually(lambda: process.ended, 60, process.tail)
        code = process.wait()
        assert code in WITHOUT_A_WORD or (code, "gets no more memory" in process.said()) == (3, True), process.tail()
        process.start()
        wait_for_cuts(live, watcher)
        live.assert_equal("public.wide")
        assert audit(live.records("public.wide")) == []
