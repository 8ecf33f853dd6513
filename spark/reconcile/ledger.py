"""Records which passes of a run are done, so that a killed run can be resumed instead of starting again.

Each pass is exact at a snapshot of its own. The report of a resumed run shows this by naming each pass's snapshot.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from cdc.contract.jobspec.certificate import CertifiedFold
from cdc.contract.jobspec.deployment import STRICT
from cdc.spark.offsets import Extent
from cdc.spark.report.model import OffsetRange, Round


class PassDone(BaseModel):
    """A finished pass: one part of a table's keys.

    Attributes:
        folder: the folder with its findings, if there are any.
        round: its snapshot and counts.
        fold: what a certificate says about the topic; None if none was asked for.
    """

    model_config = STRICT

    number: int
    folder: str
    source_rows: int
    live_keys: int
    tombstones: int
    round: Round
    offsets: tuple[OffsetRange, ...]
    fold: CertifiedFold | None = None


def ranges(extent: Extent) -> tuple[OffsetRange, ...]:
    """Returns the offsets that were read from a topic, for the report."""
    return tuple(
        OffsetRange(partition=partition, start=start, end=end, records=end - start)
        for partition, (start, end) in enumerate(zip(extent.starts, extent.ends, strict=True))
    )


class PassLedger:
    """The passes of one table. Those that are already there belong to the same comparison: ``identity`` checks that.

    Args:
        folder: the table's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def done(self, number: int) -> PassDone | None:
        """Returns the pass if it is done, or else None."""
        entry = self._entry(number)
        return PassDone.model_validate_json(entry.read_text(encoding="utf-8")) if entry.exists() else None

    def keep(self, done: PassDone) -> None:
        """Notes a pass as done, in one step: a crash leaves the whole entry or none."""
        unfinished = self._folder / "unfinished.json"
        unfinished.write_text(done.model_dump_json(), encoding="utf-8")
        unfinished.replace(self._entry(done.number))

    def _entry(self, number: int) -> Path:
        return self._folder / f"done-{number}.json"
