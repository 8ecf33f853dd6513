"""The code that decides about rows, the tests that know it, and the functions that a run of mutants cannot judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Room(NamedTuple):
    """Code that is mutated together.

    Attributes:
        code: patterns of its files.
        tests: what runs first for each mutant; mutmut takes those that reach the mutated function.
        in_worlds: whether worlds run this code, so that they may notice what these tests did not.
        left_out: patterns of functions whose mutants say nothing, each with the reason.
    """

    code: tuple[str, ...]
    tests: tuple[str, ...]
    in_worlds: bool = True
    left_out: Mapping[str, str] = {}


_C: Final = "the door to the module in C, which these runs do without; tests/property/test_compiled_*.py use both"

ROOMS: Final[Mapping[str, Room]] = {
    "order": Room(
        ("cdc/bridge/order/*.py",),
        ("tests/unit/bridge",),
        left_out={
            "*.engine.xǁEngineǁfeed__*": _C,
            "*.relations.x_take_rows__*": _C,
            "*.relations.x__plain__*": _C,
        },
    ),
    "backfill": Room(
        ("cdc/bridge/backfill/*.py",),
        ("tests/unit/bridge",),
        left_out={"*.lines.xǁLineEncoderǁ__init____*": _C, "*.lines.xǁLineEncoderǁencode__*": _C},
    ),
    "publish": Room(("cdc/kafka/publish/*.py",), ("tests/unit/kafka", "tests/unit/bridge")),
    "cut": Room(("cdc/kafka/replay/cut.py",), ("tests/unit/kafka/replay", "tests/unit/sink")),
    "apply": Room(
        ("cdc/sink/apply/*.py",),
        ("tests/unit/sink", "tests/unit/kafka/replay"),
        left_out={"*.run.x_run_sink__*": "puts the process together; tests that start it are not among these"},
    ),
    "contract": Room(
        ("cdc/contract/*.py",),
        (
            "tests/unit/contract",
            "tests/unit/bridge",
            "tests/unit/topics",
            "tests/unit/spark/reconcile",
            "tests/unit/base/test_table_names.py",
        ),
        left_out={"*.pgtypes.x__read_table__*": "runs when the module is imported, before a mutant is chosen"},
    ),
    "formats": Room(
        ("cdc/contract/formats/*.py",),
        (
            "tests/unit/contract",
            "tests/unit/state/test_keys.py",
            "tests/unit/sink/postgres/test_rows.py",
            "tests/unit/topics/lookup",
            "tests/property/test_value_format.py",
        ),
    ),
    "verdict": Room(
        ("cdc/spark/reconcile/verdict.py",),
        ("tests/unit/spark/test_verdict.py", "tests/unit/spark/reconcile", "tests/property/test_verdicts.py"),
        in_worlds=False,
    ),
}
