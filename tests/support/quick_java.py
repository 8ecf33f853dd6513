"""Java's options for Spark jobs that are over in seconds; they reach jobs that commands start, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""A job ends before what Java's second compiler does has paid for itself: a start costs 14 s of CPU instead of 28.

Without that compiler Java makes room for a fifth of the code only, which is full after some ten jobs: what was compiled
is then thrown away and compiled again, for ever.
"""


def make_default(folder: Path) -> None:
    """Spark's defaults for this process and those that it starts; what a job itself sets wins.

    Args:
        folder: for the file with them.
    """
    settings = f"spark.driver.extraJavaOptions {QUICK}\nspark.executor.extraJavaOptions {QUICK}\n"
    (folder / "spark-defaults.conf").write_text(settings, encoding="utf-8")
    os.environ["SPARK_CONF_DIR"] = str(folder)
