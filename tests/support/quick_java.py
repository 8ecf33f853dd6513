"""Java's options for Spark jobs that are over in seconds; they reach jobs that commands start, too."""

from __future__ import annotations

import os
from typing import Final

from cdc.lab.stack.spark import SUBMIT_OPTIONS

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""A job ends before what Java's second compiler does has paid for itself: half a start's CPU.

Without that compiler Java makes room for a fifth of the code only, which is full after some ten jobs: what was compiled
is then thrown away and compiled again, for ever.
"""


def make_default() -> None:
    """For drivers of this process and of those that it starts; what a job itself sets wins."""
    os.environ[SUBMIT_OPTIONS] = QUICK
