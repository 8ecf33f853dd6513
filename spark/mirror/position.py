"""Where a table stands, kept with its rows, and whose turn a micro-batch is.

Theory of operation. Spark runs a micro-batch again when it does not know that it was done, and its checkpoint may be
lost, or be newer than a target that came back from a backup. So the target keeps, in the same transaction as the rows:
the *generation* (one checkpoint's life), the number of the last batch of that generation, and the next offset of each
partition. A batch is taken only if it is the next one of the same generation, or the first one of a generation that
began at exactly these offsets; a batch whose number and records were taken already changes nothing; any other one is
refused. So whatever is lost or comes twice, rows and offsets stay together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame

from cdc.spark.mirror.definitions import Definitions

Offsets = Mapping[int, int]
"""Partition → the first offset that is not applied yet."""


@dataclass(frozen=True, slots=True)
class Position:
    """What a target remembers of a table; ``written_ms`` is when."""

    generation: str = ""
    batch: int = -1
    offsets: Offsets = field(default_factory=dict)
    written_ms: int = 0

    def after(self, batch: Batch, ends: Offsets, now_ms: int) -> Position:
        """Behind a batch that read up to ``ends`` (exclusive)."""
        return Position(batch.generation, batch.number, {**self.offsets, **ends}, now_ms)

    def as_fields(self) -> dict[str, Any]:
        """For JSON, whose member names are strings."""
        return {
            "generation": self.generation,
            "batch": self.batch,
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "written_ms": self.written_ms,
        }

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Position:
        """The way back."""
        offsets = {int(partition): offset for partition, offset in fields["offsets"].items()}
        return Position(fields["generation"], fields["batch"], offsets, fields["written_ms"])


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of one topic; ``began`` are the target's offsets at which the generation began."""

    generation: str
    number: int
    began: Offsets


class NotItsTurn(Exception):
    """The target is not where Spark's notes have it: they are lost, another's, or the target came from a backup."""


def admits(position: Position, batch: Batch, ends: Offsets) -> bool:
    """Whether the batch is to be applied; False when it was already.

    Args:
        position: of the target.
        batch: that Spark offers.
        ends: by partition the offset behind its last record.

    Raises:
        NotItsTurn: applying it would leave something out.
    """
    if position.generation == batch.generation:
        # Notes of which a part was lost count from 0 again: then the number was taken, the records were not.
        is_applied = all(end <= position.offsets.get(partition, 0) for partition, end in ends.items())
        if batch.number <= position.batch and is_applied:
            return False
        if batch.number == position.batch + 1:
            return True
    elif batch.number == 0 and dict(position.offsets) == dict(batch.began):
        return True
    raise NotItsTurn(
        f"batch {batch.number} of {batch.generation} does not follow batch {position.batch} of {position.generation}"
    )


class Target(Protocol):
    """Takes micro-batches, exactly once each."""

    def establish(self, definitions: Definitions) -> None:
        """Make or widen what holds the rows, for every table; called again when a definition is new."""

    def positions(self) -> Mapping[str, Position]:
        """By topic, where each table stands."""

    def forget(self) -> None:
        """Empty every table, and its position."""

    def apply(self, topic: str, latest: DataFrame, batch: Batch, ends: Offsets) -> bool:
        """Take one topic's part of a batch: rows and position together.

        Args:
            topic: whose records they are.
            latest: ``key``, ``value``, ``partition``, ``offset``, ``header``; the last record of each key.
            batch: whose turn it may be.
            ends: by partition the offset behind the last record of the batch.

        Raises:
            NotItsTurn: nothing was changed.
        """

    def finish(self) -> None:
        """At the end of a run that was to come to an end."""
