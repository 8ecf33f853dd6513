"""The modules in C: which of them are installed, and whether they are used.

Some modules of the hot path have a twin in C, written in Cython (``_name.pyx``). The twin takes ordinary rows and
declines all others, which then go through Python, so that errors are raised in one place. An installation that was
built without a C compiler has no twins; it does the same at about half the speed.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

TWINS: Final = (
    "cdc.bridge.backfill._lines",
    "cdc.contract.formats._avro_rows",
    "cdc.contract.formats._json_rows",
    "cdc.contract.formats._objects",
    "cdc.contract.formats._protobuf_rows",
    "cdc.bridge.order._frames",
    "cdc.kafka.replay._cut",
    "cdc.kafka.replay._home",
    "cdc.sink.postgres._fresh",
)

_is_avoided = False


def avoid() -> None:
    """Use no twins in this process; called by the command line with ``CDC_PURE_PYTHON=1``, and by tests."""
    global _is_avoided
    _is_avoided = True


def twin(name: str) -> Any:
    """Returns a module in C; None if it is not built or not to be used. Ask when making an object, not on import."""
    if _is_avoided:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def language() -> str:
    """The language of the hot path, for logs: ``C``, or ``Python`` if a twin is missing or not to be used."""
    return "C" if all(twin(name) is not None for name in TWINS) else "Python"
