"""What may happen to bridge, sink and servers; a seed decides what, when and for how long."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import psycopg

from cdc.lab.stack import PostgresServer
from tests.soak.place import Place
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment
from tests.support.disturbances import stopped
from tests.support.servers import Database
from tests.support.waiting import eventually

_LONGEST_PAUSE_S: Final = 20.0
_LONGEST_S: Final = 12.0
_TERMINATE: Final = (
    "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename is not null"
)


class Hit(NamedTuple):
    """A fault that is to come.

    Attributes:
        pause_s: what lies between it and the fault before.
        lasts_s: how long a process stands still, or is away.
    """

    kind: str
    pause_s: float
    lasts_s: float


def kill(process_of: Callable[[Place], CdcProcess], place: Place, lasts_s: float) -> None:
    """A process is gone at once, and started again after a while."""
    process = process_of(place)
    process.kill()
    _last(lasts_s / 4)
    process.start()


def hang(process_of: Callable[[Place], CdcProcess], place: Place, lasts_s: float) -> None:
    """A process stands still, and goes on as if nothing had happened."""
    with stopped(process_of(place).pid):
        _last(lasts_s)


def terminate(database_of: Callable[[Deployment], Database], place: Place, lasts_s: float) -> None:
    """All sessions of a server are ended, those of bridge, sink and load among them."""
    with suppress(psycopg.OperationalError):
        database_of(place.live).execute(_TERMINATE)


def restart_broker(place: Place, lasts_s: float) -> None:
    """The broker dies, and is started again."""
    place.broker.kill()
    _last(lasts_s / 4)
    place.broker.restart()


def stop_at_once(server_of: Callable[[Place], PostgresServer], place: Place, lasts_s: float) -> None:
    """A server is stopped without a checkpoint (``pg_ctl stop -m immediate``), and recovers at its start."""
    server = server_of(place)
    os.kill(server.pid, signal.SIGQUIT)
    eventually(lambda: not server.pid)
    _last(lasts_s / 4)
    server.restart()


def _last(seconds: float) -> None:
    threading.Event().wait(seconds)


KINDS: Final[dict[str, Callable[[Place, float], None]]] = {
    "bridge killed": partial(kill, lambda place: place.live.bridge),
    "bridge hangs": partial(hang, lambda place: place.live.bridge),
    "sink killed": partial(kill, lambda place: place.live.sink),
    "sink hangs": partial(hang, lambda place: place.live.sink),
    "source sessions ended": partial(terminate, lambda live: live.source),
    "replica sessions ended": partial(terminate, lambda live: live.replica),
    "broker killed": restart_broker,
    "source stopped": partial(stop_at_once, lambda place: place.source_server),
    "replica stopped": partial(stop_at_once, lambda place: place.replica_server),
}


def chosen(rng: random.Random, kinds: Collection[str]) -> Iterator[Hit]:
    """Yields hits without end, each kind once before any comes again; of no kinds, none."""
    while kinds:
        for kind in rng.sample(sorted(kinds), len(kinds)):
            yield Hit(kind, rng.uniform(0, _LONGEST_PAUSE_S), rng.uniform(0, _LONGEST_S))
