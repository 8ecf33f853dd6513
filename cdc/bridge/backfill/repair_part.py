"""A part of a repair that is under way, and what was done for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc.bridge.order.touched import Recording
from cdc.contract.record import RepairKey, RepairRequest


@dataclass(slots=True)
class Repaired:
    """What was done for a part of a request so far. ``again`` holds keys to be looked up once more."""

    rows: int = 0
    tombstones: int = 0
    touched: int = 0
    bytes: int = 0
    again: list[RepairKey] = field(default_factory=list)


@dataclass(slots=True)
class RepairPart:
    """A part that is under way. When it is looked up once more, it gets other keys and a recording of its own."""

    request: RepairRequest
    keys: tuple[RepairKey, ...]
    recording: Recording
    done: Repaired = field(default_factory=Repaired)
