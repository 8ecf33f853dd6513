"""How often a random test tries its luck, or how hard: a sample in an ordinary run, many times in ``make soak``."""

from __future__ import annotations

import os
from typing import TypeVar

Number = TypeVar("Number", int, float)


def times(sample: Number, *, soak: Number) -> Number:
    """``soak`` under ``make soak``, which sets ``SOAK=1``; else ``sample``."""
    return soak if os.environ.get("SOAK") else sample
