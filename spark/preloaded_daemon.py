"""PySpark's daemon for jobs on this machine: it has loaded what tasks need, and the workers that it forks share that.

PySpark's own daemon loads nothing, because pandas and pyarrow start threads when they are imported, and a lock that a
thread holds during a fork stays locked in the worker. Here they are told to start none.
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import Final

import pyspark.daemon

_NO_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What numpy and pyarrow read when they are imported."""
_LOADED: Final = ("pyspark.worker", "pyarrow", "pandas")
"""What nearly every task imports: half a second of CPU for each worker otherwise. pyarrow imports pandas itself."""


def main() -> None:
    """Loads the modules, and forks workers until Spark closes standard input."""
    # PySpark does the same, but after the imports: Ctrl-C is for the job, which ends its daemon itself.
    os.setpgid(0, 0)
    os.environ.update(_NO_THREADS)
    for name in _LOADED:
        importlib.import_module(name)
    # A worker collects garbage after each task. It would take 30 ms to look at all that was loaded.
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
