"""A long outage: whatever an attempt has opened is gone before the next one."""

from __future__ import annotations

import gc
import threading

import psutil
import psycopg
import pytest

from cdc.base.daemon.supervise import supervise
from cdc.base.errors import CdcError, SourceUnavailable
from cdc.kafka.brokers import BrokerAdmin
from cdc.lab.stack.embedded import free_port

ATTEMPTS = 6


class Impatient(threading.Event):
    """Does not pause; notes how many threads the process has when it would."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.threads.append(psutil.Process().num_threads())
        if len(self.threads) == ATTEMPTS:
            self.set()
        return self.is_set()


class Session:
    """As the bridge's: it makes a Kafka client, and then does not get through to PostgreSQL."""

    def __init__(self) -> None:
        self.admin = BrokerAdmin({"bootstrap.servers": f"127.0.0.1:{free_port()}"})

    def run(self) -> None:
        try:
            psycopg.connect(f"host=127.0.0.1 port={free_port()}")
        except psycopg.OperationalError as error:
            raise SourceUnavailable("the source is away", remedy="wait") from error


@pytest.mark.parametrize("keeps", [False, True])
def test_attempts_leave_no_threads(keeps: bool) -> None:
    """Also where somebody keeps the errors, and while Python looks for cycles as rarely as in the daemons."""
    stop, kept = Impatient(), list[CdcError]()
    gc.disable()
    try:
        supervise(lambda _: Session().run(), stop, kept.append if keeps else lambda _: None)
    finally:
        gc.enable()
    assert len(set(stop.threads)) == 1, stop.threads
