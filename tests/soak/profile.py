"""What a profile of the load is."""

from __future__ import annotations

import random
from typing import Any, Protocol

import psycopg

Connection = psycopg.Connection[Any]


class Profile(Protocol):
    """Makes its tables, and does the work of a transaction that somebody else ends.

    It remembers nothing, so that several sessions may use it.
    """

    def create(self, connection: Connection) -> None:
        """Make the tables."""

    def change(self, connection: Connection, rng: random.Random) -> int:
        """Do the work of one transaction; returns how many rows it changed."""


def changed(connection: Connection, query: str, *parameters: object) -> int:
    """Run a query; returns how many rows it changed."""
    return max(0, connection.execute(query.encode(), parameters or None).rowcount)
