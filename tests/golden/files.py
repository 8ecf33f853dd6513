"""Reads and writes the golden files."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MAJORS = tuple(sorted(int(path.stem.removeprefix("pgoutput_")) for path in HERE.glob("pgoutput_*.json")))


def captured(major: int) -> dict[str, Any]:
    """What ``capture.py`` wrote for one PostgreSQL major."""
    contents: dict[str, Any] = json.loads((HERE / f"pgoutput_{major}.json").read_text())
    return contents


def messages(major: int, protocol: int) -> list[bytes]:
    """The stream's messages in order."""
    return [bytes.fromhex(message) for message in captured(major)[f"protocol_{protocol}"]["messages"]]


def vectors(name: str) -> list[dict[str, Any]]:
    """``keys``, ``values`` or ``headers``."""
    contents: list[dict[str, Any]] = json.loads((HERE / f"{name}.json").read_text())
    return contents


def fuzzed(target: str) -> list[bytes]:
    """Inputs that a fuzzer found worth keeping, for one target of ``tests.fuzz``."""
    path = HERE / "fuzz" / f"{target}.txt"
    return [ast.literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_fuzzed(target: str, inputs: Iterable[bytes]) -> None:
    """Replace a target's inputs: one a line, as Python writes bytes."""
    (HERE / "fuzz").mkdir(exist_ok=True)
    (HERE / "fuzz" / f"{target}.txt").write_text("".join(f"{data!r}\n" for data in inputs))
