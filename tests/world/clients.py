"""Puts the models in the place of the client libraries, once for the whole process.

The product binds the clients' names when it is imported, and one of its classes inherits from one of them. So a process
that runs worlds calls ``install`` before it imports the product, and never talks to a real server.
"""

from __future__ import annotations

import gc
import logging
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import psycopg

from tests.world import kafka_clients
from tests.world.postgres_sessions import PostgresWorld


class Servers:
    """The PostgreSQL servers that connections lead to now."""

    world: PostgresWorld

    @classmethod
    def connect(cls, conninfo: str, *, autocommit: bool = False) -> Any:
        """``psycopg.connect``."""
        return cls.world.connect(conninfo, autocommit=autocommit)

    POLLIN = 1

    @classmethod
    def poll(cls) -> Any:
        """``select.poll``."""
        return cls.world.select.poll()

    @classmethod
    def select(cls, *lists: Any) -> Any:
        """``select.select``."""
        return cls.world.select.select(*lists)


def install() -> None:
    """Replace the clients.

    Raises:
        AssertionError: the product is imported already.
    """
    bound = [name for name in ("cdc.kafka.brokers", "cdc.bridge.session") if name in sys.modules]
    assert not bound, f"already imported: {bound}"
    _replace(confluent_kafka, Producer=kafka_clients.Producer, Consumer=kafka_clients.Consumer)
    _replace(confluent_kafka.admin, AdminClient=kafka_clients.AdminClient)
    _replace(psycopg, connect=Servers.connect)
    for name in ("cdc.bridge.capture.chunk", "cdc.bridge.capture.copy_both"):
        _replace(import_module(name), select=Servers)
    # The product asks for rare collections, and freezes what it has imported: once is enough for all runs
    _replace(gc, freeze=lambda: None, set_threshold=lambda *_: None)
    logging.getLogger("cdc.waiting").disabled = True
    logging.getLogger("concurrent.futures").disabled = True  # it reports each thread of a program that was killed


def _replace(module: ModuleType, **names: object) -> None:
    for name, value in names.items():
        assert hasattr(module, name), name
        setattr(module, name, value)
