"""How often a random test tries its luck: a sample in an ordinary run, many times in ``make soak``."""

from __future__ import annotations

import os


def times(sample: int, *, soak: int) -> int:
    """``soak`` under ``make soak``, which sets ``SOAK=1``; else ``sample``."""
    return soak if os.environ.get("SOAK") else sample
