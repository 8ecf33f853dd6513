"""What of a run is done, kept beside its findings, so that a killed run goes on instead of starting anew.

Each pass was exact at a snapshot of its own; a run that is resumed says so by the snapshots of its passes.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from cdc.contract.jobspec.deployment import STRICT
from cdc.spark.offsets import Extent
from cdc.spark.report.model import OffsetRange, Round


class PassDone(BaseModel):
    """A part of a table's keys that was compared.

    Attributes:
        folder: with its findings, if there are any.
        round: its snapshot.
    """

    model_config = STRICT

    number: int
    folder: str
    source_rows: int
    live_keys: int
    tombstones: int
    round: Round
    offsets: tuple[OffsetRange, ...]


def ranges(extent: Extent) -> tuple[OffsetRange, ...]:
    """What was read of a topic, for the report."""
    return tuple(
        OffsetRange(partition=partition, start=start, end=end, records=end - start)
        for partition, (start, end) in enumerate(zip(extent.starts, extent.ends, strict=True))
    )


class PassLedger:
    """One table's passes; those that are there already are of the same comparison (``identity``).

    Args:
        folder: of the table.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def done(self, number: int) -> PassDone | None:
        """The pass, if it is done."""
        entry = self._entry(number)
        return PassDone.model_validate_json(entry.read_text(encoding="utf-8")) if entry.exists() else None

    def keep(self, done: PassDone) -> None:
        """Note a pass as done: it is there whole or not at all."""
        unfinished = self._folder / "unfinished.json"
        unfinished.write_text(done.model_dump_json(), encoding="utf-8")
        unfinished.replace(self._entry(done.number))

    def _entry(self, number: int) -> Path:
        return self._folder / f"done-{number}.json"
