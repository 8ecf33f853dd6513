"""One Kafka for all processes of a run: what it compiles and does when idle is paid for once.

The controller of pytest-xdist starts it, its workers find it in the environment. Java's second compiler pays for itself
within minutes then: over the rings bridge, sink and backfill, one such broker took 126 s of CPU, four quick ones 174 s.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from cdc.stack import Kafka, open_kafka
from cdc.stack.cache import Say, silent

_BROKER: Final = pytest.StashKey[Kafka]()
_VARIABLE: Final = "CDC_TESTS_BROKER"
_HEAP_MB: Final = 1024


def start_for_workers(config: pytest.Config, say: Say) -> None:
    """In the controller, before there are workers."""
    broker = config.stash[_BROKER] = open_kafka(heap_mb=_HEAP_MB, say=say)
    os.environ[_VARIABLE] = broker.bootstrap


def join(config: pytest.Config, say: Say) -> Kafka:
    """The broker of this run. Where there is one process only, the first test that asks starts it."""
    if (broker := joined(config)) is None:
        shared = os.environ.get(_VARIABLE)  # of which was told when it started
        broker = open_kafka(bootstrap=shared, for_tests=True, say=silent if shared else say)
        config.stash[_BROKER] = broker
    return broker


def joined(config: pytest.Config) -> Kafka | None:
    """The broker of this run, if a test of this process has asked for it."""
    return config.stash.get(_BROKER, None)


def stop(config: pytest.Config) -> None:
    """End it where it was started; others only leave."""
    if broker := joined(config):
        broker.close()
