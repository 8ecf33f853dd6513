"""Bridge or sink gets too little memory for a row, and ends: nothing is lost or torn, and with more it goes on.

``test_big_transaction.py`` shows that what is planned suffices, whatever the size of a transaction.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
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
WIDE: Final = """
INSERT INTO wide SELECT i, repeat(md5(i::text), 350000) FROM generate_series(1, 6) i
ON CONFLICT (id) DO UPDATE SET note = excluded.note
"""
"""Rows of 11 MB."""
WITHOUT_A_WORD: Final = (-signal.SIGABRT, -signal.SIGSEGV)
"""How libraries in C end a process that gets no memory."""


ONE_MORE_THREAD: Final = """
import resource, psutil
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.requests import withdraw_request
from cdc.kafka.publish.row_producer import RowProducer
from cdc.kafka.publish.transactional import TransactionalProducer
from cdc.kafka.replay.client import open_consumer
options = {"bootstrap.servers": "127.0.0.1:1"}
resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + (9 << 20), resource.RLIM_INFINITY))
"""
"""The memory that is left is enough for one stack of 8 MB. librdkafka would wait for ever, or abort."""
CLIENTS: Final = {
    "admin": "BrokerAdmin(options)",
    "consumer": "open_consumer(options)",
    "request": "withdraw_request(options, 'topic', 'request')",
    "prompt": "RowProducer(options, max_message_bytes=1_000_000)",
    "transactional": "TransactionalProducer(options, transactional_id='id', max_message_bytes=1_000_000)",
}


def limit(process: CdcProcess, more_mb: int) -> None:
    """Let a process have so much more than now, and never more than it was let have before.

    Once is not enough: it may have had threads for a moment, whose stacks then hold the whole row.
    """
    assert process.pid is not None
    with contextlib.suppress(psutil.NoSuchProcess):
        subject = psutil.Process(process.pid)
        allowed, most = subject.rlimit(psutil.RLIMIT_DATA)
        enough = subject.memory_info().data + (more_mb << 20)
        subject.rlimit(psutil.RLIMIT_DATA, (enough if allowed == psutil.RLIM_INFINITY else min(allowed, enough), most))


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

        def is_pressed_to_death() -> bool:
            limit(process, TOO_LITTLE_MB[work])
            if work == "stream":
                database.execute(WIDE)
            else:
                live.command("backfill", "public.wide")
            return process.ended

        eventually(is_pressed_to_death, 60, process.tail)
        code = process.wait()
        assert code in WITHOUT_A_WORD or (code, "gets no more memory" in process.said()) == (3, True), process.tail()
        process.start()
        wait_for_cuts(live, watcher)
        live.assert_equal("public.wide")
        assert audit(live.records("public.wide")) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_does_not_get_its_threads_is_refused(client: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ONE_MORE_THREAD + CLIENTS[client]], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "RuntimeError: can't start new thread")
