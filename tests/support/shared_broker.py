"""One Kafka for all processes of a run: what it compiles and does when idle is paid for once.

``tests.suite`` or the controller of pytest-xdist starts it, the others find it in the environment. Java's second
compiler pays for itself within minutes then: over the rings bridge, sink and backfill, one such broker took 126 s of
CPU, four quick ones 174 s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from cdc.lab.stack import Kafka, open_kafka
from cdc.lab.stack.cache import Say, silent

_BROKER: Final = pytest.StashKey[Kafka]()
_VARIABLE: Final = "CDC_TESTS_BROKER"
_HEAP_MB: Final = 1024


def say_on_stderr(line: str) -> None:
    """Where nobody captures what is printed."""
    sys.stderr.write(f"stack: {line}\n")


@contextmanager
def for_all() -> Iterator[None]:
    """For several runs of pytest, which are this process's children."""
    broker = open_kafka(heap_mb=_HEAP_MB, say=say_on_stderr)
    os.environ[_VARIABLE] = broker.bootstrap
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
        broker.close()


def start_for_workers(config: pytest.Config) -> None:
    """In the controller, before there are workers; nothing when there is one already."""
    if _VARIABLE not in os.environ:
        broker = config.stash[_BROKER] = open_kafka(heap_mb=_HEAP_MB, say=say_on_stderr)
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
