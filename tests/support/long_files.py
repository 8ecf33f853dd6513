"""Which test files take minutes. Two processes share the suite file by file: the longest come first.

A file that is missing here costs at most its own length at the end, when the other process has nothing left to do.
"""

from __future__ import annotations

from typing import Final

LONG_FILES: Final = (
    "tests/fault/test_spark_cluster.py",
    "tests/integration/spark/test_scale_out.py",
    "tests/integration/spark/test_reconcile_live.py",
    "tests/integration/spark/test_reconcile_kept.py",
    "tests/integration/spark/test_reconcile_options.py",
    "tests/integration/spark/test_health_mirror_commands.py",
    "tests/integration/spark/test_snapshot_past.py",
    "tests/integration/spark/test_reconcile_types.py",
    "tests/integration/spark/test_reconcile_together.py",
    "tests/integration/spark/test_reconcile_pairs.py",
    "tests/acceptance/test_demo.py",
    "tests/fault/test_steps.py",
    "tests/integration/spark/test_snapshot.py",
    "tests/integration/spark/test_audit.py",
    "tests/acceptance/test_bench.py",
    "tests/fault/test_backfill_kills.py",
)
"""By their length on two cores, from eight minutes down to one."""


def longest_first(file: str) -> int:
    """Sorts files: those that are long, then all others as they are listed.

    Args:
        file: relative to the project.
    """
    return LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES)
