"""How several test processes share the suite: file by file, the longest first, and Spark's in a lane of their own.

A Spark job keeps two cores busy, most other tests wait for something most of the time. So with three processes or more,
one of them runs the tests of Spark's jobs, one after the other in one warm JVM, and the others all else beside it; from
four on two do, each with a JVM of its own.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler.loadfile import LoadFileScheduling

LONG_FILES: Final = (
    "tests/integration/spark/test_damage.py",
    "tests/integration/spark/test_delta.py",
    "tests/integration/spark/test_reconcile_live.py",
    "tests/integration/spark/test_reconcile_lake.py",
    "tests/integration/spark/test_reconcile_files.py",
    "tests/integration/sink/sql/test_end_to_end.py",
    "tests/fault/test_kills.py",
    "tests/integration/bridge/test_formats.py",
    "tests/acceptance/test_demo.py",
    "tests/install/test_wheel.py",
    "tests/integration/bridge/test_avro_keys.py",
    "tests/property/test_world.py",
    "tests/integration/views/store/test_redis_store.py",
    "tests/integration/world/test_kafka_promises.py",
    "tests/integration/sink/postgres/test_locked.py",
    "tests/integration/bridge/backfill/test_living.py",
    "tests/integration/views/http/test_processes.py",
    "tests/integration/lab/learn/test_lessons.py",
    "tests/integration/bridge/test_envelope.py",
    "tests/integration/spark/test_iceberg.py",
    "tests/integration/bridge/test_row_filters.py",
    "tests/integration/bridge/test_quarantine.py",
    "tests/integration/bridge/test_messages.py",
    "tests/integration/bridge/test_hidden_columns.py",
    "tests/integration/bridge/test_protobuf.py",
    "tests/fault/test_two_bridges.py",
    "tests/integration/sink/postgres/test_key_types.py",
    "tests/acceptance/test_dashboard.py",
    "tests/fault/test_failover.py",
    "tests/fault/test_cluster.py",
    "tests/fault/test_view_kills.py",
    "tests/property/test_three_way.py",
    "tests/integration/security/test_kafka_access.py",
    "tests/integration/views/http/test_end_to_end.py",
    "tests/integration/lab/stack/test_registry.py",
    "tests/fault/test_pair_outages.py",
    "tests/fault/test_crashpoints.py",
)
"""By what they cost, from three minutes down to one. A file that is missing here costs at most its own length at
the end, when the other processes have nothing left to do."""

_SPARK: Final = "tests/integration/spark/"
_RECONCILE: Final = tuple(f"{_SPARK}test_{name}" for name in ("reconcile", "audit", "rows_ahead", "topics_made_anew"))
"""About half of the lane's time."""
_INSTALL: Final = "tests/install/"
"""One wheel is built for all of them."""
LANES_FROM: Final = 3
"""Processes. With two, each takes the next file, whichever it is."""
_TWO_LANES_FROM: Final = 4


def longest_first(file: str) -> int:
    """Sorts files: those that are long, then all others as they are listed.

    Args:
        file: relative to the project.
    """
    return LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES)


class SparkLane(LoadFileScheduling):
    """Hands out files; those of Spark's jobs all to one process, and of four or more, reconciliations to another."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_INSTALL):
            return _INSTALL
        if not nodeid.startswith(_SPARK):
            scope: str = super()._split_scope(nodeid)
            return scope
        is_apart = self.numnodes >= _TWO_LANES_FROM and nodeid.startswith(_RECONCILE)
        return "reconcile" if is_apart else "spark"
