"""The modules in C: which of them are installed, and whether they are used.

Some modules of the hot path have a twin in C, written in Cython (``_name.pyx``). The twin takes ordinary rows and
declines all others, which then go through Python, so that errors are raised in one place. An installation that was
built without a C compiler has no twins; it does the same at about half the speed.

Each twin holds a hash of the source that it was built from. In a checkout, where the source lies beside it, a twin of
another source is not used: after an update, it might do what the Python code does not expect any more.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

TWINS: Final = (
    "cdc.bridge.backfill._lines",
    "cdc.contract._hiding",
    "cdc.contract.formats._avro_rows",
    "cdc.contract.formats._json_rows",
    "cdc.contract.formats._objects",
    "cdc.contract.formats._protobuf_rows",
    "cdc.contract.formats.debezium._envelopes",
    "cdc.contract.formats.debezium._rows",
    "cdc.bridge.order._frames",
    "cdc.kafka.replay._cut",
    "cdc.kafka.replay._home",
    "cdc.sink.postgres._fresh",
)

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_CIMPORTED: Final = re.compile(rb"^from (cdc\.[\w.]+) cimport ", re.MULTILINE)
_is_avoided = False


def avoid() -> None:
    """Use no twins in this process; called by the command line with ``CDC_PURE_PYTHON=1``, and by tests."""
    global _is_avoided
    _is_avoided = True


def twin(name: str) -> Any:
    """Returns a module in C; None if it is not built or not to be used. Ask when making an object, not on import."""
    return None if _is_avoided else _imported(name)


@cache
def _imported(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    except ValueError:  # it was built with another layout of what it takes from another module
        _tell_of_stale_modules()
        return None
    source = Path(str(module.__file__)).with_name(f"{name.rpartition('.')[2]}.pyx")
    if source.exists() and getattr(module, "SOURCE", b"") != source_hash(source):
        _tell_of_stale_modules()
        return None
    return module


def source_hash(source: Path) -> bytes:
    """Returns the hash of a module's source, and of the declarations (``.pxd``) of ours that it names."""
    text = source.read_bytes()
    digest = blake2b(text, digest_size=8)
    for name in _CIMPORTED.findall(text):
        _, *rooms, module = name.decode().split(".")
        digest.update(_PACKAGE.joinpath(*rooms, f"{module}.pxd").read_bytes())
    return digest.hexdigest().encode()


@cache  # once for all of them
def _tell_of_stale_modules() -> None:
    import structlog  # not there when setup.py asks for a hash

    structlog.get_logger("cdc").warning(
        "modules in C are older than their sources: Python does their work, at about half the speed",
        remedy="build them again: python setup.py build_ext --inplace, or install the checkout again",
    )


def language() -> str:
    """The language of the hot path, for logs: ``C``, or ``Python`` if a twin is missing or not to be used."""
    return "C" if all(twin(name) is not None for name in TWINS) else "Python"
