"""The file of differing keys, which the repair and a second run read: one JSON object per line.

Keys are in base64, because a key that another program wrote need not be text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

MAX_KEYS: Final = 100_000
"""The bridge repairs up to this many keys one by one; for more, a backfill of the table is cheaper."""


class RepairableKey(NamedTuple):
    """A key to repair; ``partition`` is a wrong partition in which a record of the key lies, or None."""

    key: bytes
    partition: int | None


def keys_file(folder: str, topic: str) -> str:
    """Returns the path of the file in which a run leaves the differing keys of a topic.

    Args:
        folder: ``keys_to`` of the run.
        topic: the topic's name.
    """
    return f"{folder}/{topic}.keys.jsonl"


def write_keys(path: Path, keys: Iterable[RepairableKey]) -> None:
    """Write the file; readers see all of it or nothing."""
    lines = (json.dumps({"key": base64.b64encode(each.key).decode(), "partition": each.partition}) for each in keys)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    unfinished.replace(path)


def read_keys(path: Path) -> list[RepairableKey]:
    """Read a file that ``write_keys`` wrote."""
    parsed = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    return [RepairableKey(base64.b64decode(each["key"]), each["partition"]) for each in parsed]
