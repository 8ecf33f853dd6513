"""The modules in C: which are there, and whether they are used.

Some modules of the hot path have a twin in C, written in Cython (``_name.pyx``). It takes ordinary rows and declines
all others, which go through Python then, so that there is one place that raises errors. An installation without a C
compiler has no twins; it does the same, at about half the speed.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

TWINS: Final = (
    "cdc.bridge.backfill._lines",
    "cdc.contract.formats._json_rows",
    "cdc.contract.formats._objects",
    "cdc.bridge.order._frames",
    "cdc.kafka.replay._cut",
    "cdc.kafka.replay._home",
    "cdc.sink.postgres._fresh",
)

_is_avoided = False


def avoid() -> None:
    """Do without them in this process; called by the command line with ``CDC_PURE_PYTHON=1``, and by tests."""
    global _is_avoided
    _is_avoided = True


def twin(name: str) -> Any:
    """A module in C, or None when it was not built or is not to be used. Ask when an object is made, not at import."""
    if _is_avoided:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def language() -> str:
    """What the hot path is in, for logs: ``C``, or ``Python`` when a twin is missing or not to be used."""
    return "C" if all(twin(name) is not None for name in TWINS) else "Python"
