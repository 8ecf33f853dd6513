"""Keys that differ, as the file that the repair reads and a second run looks at: one JSON object a line.

The bytes go as base64: a key that another program wrote need not be text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

MAX_KEYS: Final = 100_000
"""That many the bridge repairs one by one; with more, a backfill of the table is cheaper."""


class RepairableKey(NamedTuple):
    """``partition``: where a record of it lies although it does not belong there, else None."""

    key: bytes
    partition: int | None


def keys_file(folder: str, topic: str) -> str:
    """Where a run leaves the keys of a topic.

    Args:
        folder: ``keys_to`` of the run.
        topic: whose.
    """
    return f"{folder}/{topic}.keys.jsonl"


def write_keys(path: Path, keys: Iterable[RepairableKey]) -> None:
    """Write the file, whole or not at all."""
    lines = (json.dumps({"key": base64.b64encode(each.key).decode(), "partition": each.partition}) for each in keys)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    unfinished.replace(path)


def read_keys(path: Path) -> list[RepairableKey]:
    """What ``write_keys`` wrote."""
    parsed = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    return [RepairableKey(base64.b64decode(each["key"]), each["partition"]) for each in parsed]
