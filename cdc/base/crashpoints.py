"""Named places where a test may stop or kill this process; in production, each costs one look at a dictionary.

``CDC_CRASHPOINT=<name>[:<n>]`` in the environment of a process under test kills it with SIGKILL at the n-th visit;
``<name>:<n>:stop`` stops it there with SIGSTOP, so that a test may change something and let the process go on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

NAMES = frozenset(
    {
        "backfill.before_chunk_done",
        "backfill.inside_repair",
        "backfill.inside_sweep",
        "bridge.before_kafka_commit",
        "bridge.after_kafka_commit",
        "bridge.after_confirm",
        "bridge.inside_begin_anew",
        "bridge.inside_truncate",
        "bridge.rows_sent",
        "bridge.rows_acked",
        "mirror.before_table_commit",
        "mirror.files_written",
        "mirror.after_table_commit",
        "mirror.after_compaction",
        "mirror.before_cut",
        "mirror.after_cut",
        "reconcile.before_certificate",
        "sink.after_hold",
        "sink.after_table_changed",
        "sink.before_apply",
        "sink.before_hold",
        "sink.before_keys_dropped",
        "sink.before_keys_made",
        "sink.before_return",
        "sink.before_replica_commit",
        "sink.before_table_changed",
        "sink.after_replica_commit",
        "view.before_commit",
        "view.after_commit",
    }
)

_countdown: dict[str, int] = {}
_signal = signal.SIGKILL


def arm(specification: str) -> None:
    """Arm one crash point: ``name``, ``name:n`` or ``name:n:stop``. The command line calls it with ``CDC_CRASHPOINT``.

    Raises:
        ValueError: there is no such crash point.
    """
    global _signal
    name, _, rest = specification.partition(":")
    visits, _, ending = rest.partition(":")
    _signal = signal.SIGSTOP if ending == "stop" else signal.SIGKILL
    if name not in NAMES:
        raise ValueError(f"no crash point {name!r}; there are {', '.join(sorted(NAMES))}")
    _countdown[name] = int(visits or 1)


def reach(name: str, *, die: Callable[[int, int], None] = os.kill) -> None:
    """Mark a named place; the process dies or stops here if a test has armed it."""
    if not _countdown:
        return
    left = _countdown.get(name)
    if left is None:
        return
    _countdown[name] = left - 1
    if left == 1:
        die(os.getpid(), _signal)
