"""What the bridge asks of the backfill: a table, and why."""

from __future__ import annotations

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
