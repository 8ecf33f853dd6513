"""A view that is filled once, as a process of its own: ``python -m tests.benchmarks.view_filler CONFIG LSN``.

Ends when the tables of the view show everything up to the LSN, and prints what that took as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from cdc.base.config import load
from cdc.base.lsn import LSN
from cdc.sink.apply.loop import CutReport, run_mirror
from cdc.views.feed.stores import TABLES, ViewStores, wanted_view
from cdc.views.table.facts import read_facts
from cdc.views.table.writer import ViewPlace
from tests.benchmarks.measure import usage


def main(path: str, wanted: str) -> None:
    config, target, stop = load(Path(path), {}), LSN.parse(wanted), threading.Event()
    stores = ViewStores(config)

    def on_cut(report: CutReport) -> None:
        is_exact = all(table.state == "exact" for table in report.tables.values())
        if report.progress.lsn >= target and report.is_true and is_exact:
            stop.set()

    began = time.perf_counter()
    run_mirror(config, ViewPlace(lambda: stores.open(TABLES), config.name, wanted_view(config)), stop, on_cut)
    wall_s, spent = time.perf_counter() - began, usage(os.getpid())
    with closing(stores.open(TABLES, read_only=True)) as store:
        facts = store.read(read_facts)
        [table] = facts.tables.values()
        size = store.size()
        rows = store.read(lambda snapshot: snapshot.count(table.rows()))
    figures = {
        "wall_s": wall_s,
        "cpu_s": spent.cpu_s,
        "rss_mb": spent.rss_mb,
        "disk_bytes": size.disk_bytes,
        "memory_bytes": size.memory_bytes,
        "rows": rows,
        "state": table.state,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
