"""What the bridge asks of the backfill: a table, and why."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """A table to publish again.

    Attributes:
        table: ``schema.table``.
        sweep: afterwards, tombstone every live key that the table no longer has.
        reason: why, for people.
    """

    table: str
    sweep: bool
    reason: str


class StandingDemands:
    """Demands that no backfill is on record for yet.

    A session takes them over when it begins, and may fail before its first Kafka commit, which puts the backfills on
    record. The next session must then find them here. One thread adds demands while another one takes them over, so
    each step is a single operation on the list.
    """

    def __init__(self) -> None:
        self._standing: list[Demand] = []
        self._taken: list[Demand] = []

    def add(self, demands: Iterable[Demand]) -> None:
        """Keeps demands until they are on record."""
        self._standing.extend(demands)

    def take(self, tables: Container[str]) -> list[Demand]:
        """Returns those of the tables that a session captures."""
        self._taken = [each for each in self._standing if each.table in tables]
        return list(self._taken)

    def are_recorded(self) -> None:
        """Forgets what the session took over: its backfills are on record. A demand that came later stays."""
        taken, self._taken = self._taken, []
        for each in taken:
            self._standing.remove(each)
