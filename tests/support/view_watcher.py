"""``python -m tests.support.view_watcher FOLDER``: a process that reads a view beside the one that fills it.

It reads both tables of ``tests.support.bank`` as one commit left them, over and over, and prints what it saw as JSON
when it gets SIGTERM. Each account's balance is the sum of its entries at every LSN, and rows have no LSN beyond it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson

from cdc.base.daemon.supervise import stop_on_signals
from cdc.views.store.lmdb_store import LmdbStore
from cdc.views.store.port import StoreSnapshot
from cdc.views.table.facts import Facts, read_facts
from cdc.views.table.rows import StoredRow, unpack
from tests.support.soak import times

_MANY = 10_000_000
_LEAST_REST_S = 0.02
_REST = times(2.0, soak=0.0)
"""As a multiple of the last look's time, which grows with the tables: the others need the machine, too."""


class WatcherProcess:
    """Started at once.

    Args:
        folder: the store.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.view_watcher", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )

    def finish(self) -> dict[str, Any]:
        """Stop it: ``looks``, ``lsns`` that were seen, and ``faults``."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def kill(self) -> None:
        """At the end of a test that failed."""
        self._process.kill()
        self._process.communicate()


class _Watch:
    def __init__(self) -> None:
        self.looks = 0
        self.lsns: set[int] = set()
        self.faults: list[str] = []
        self._last = 0

    def look(self, snapshot: StoreSnapshot) -> None:
        facts = read_facts(snapshot)
        self.looks += 1
        tables = [facts.tables.get(name) for name in ("public.account", "public.ledger")]
        if facts.view is None or not facts.view.lsn or any(table is None or table.state != "exact" for table in tables):
            return
        self.lsns.add(facts.view.lsn)
        if facts.view.lsn < self._last:
            self.faults.append(f"the LSN went back from {self._last} to {facts.view.lsn}")
        self._last = facts.view.lsn
        account, ledger = (_rows(snapshot, facts, name) for name in ("public.account", "public.ledger"))
        self._compare(facts.view.lsn, account, ledger)

    def _compare(self, lsn: int, account: list[StoredRow], ledger: list[StoredRow]) -> None:
        sums: dict[int, int] = defaultdict(int)
        for row in ledger:
            entry = orjson.loads(row.row)
            sums[entry["account"]] += entry["amount"]
        balances = {found["id"]: found["balance"] for found in (orjson.loads(row.row) for row in account)}
        if torn := {key for key in {*sums, *balances} if sums[key] != balances.get(key, 0)}:
            self.faults.append(f"at {lsn}: accounts {sorted(torn)[:5]} differ from their entries")
        if any(row.lsn is None or row.lsn >= lsn for row in (*account, *ledger)):
            self.faults.append(f"at {lsn}: a row is newer than that")


def _rows(snapshot: StoreSnapshot, facts: Facts, name: str) -> list[StoredRow]:
    space = facts.tables[name].rows()
    items = snapshot.scan(space, limit=_MANY)
    assert len(items) == snapshot.count(space)
    return [unpack(item.value) for item in items]


def main(folder: Path) -> None:
    """Until SIGTERM."""
    stop, watch = stop_on_signals(), _Watch()
    store = LmdbStore(folder, read_only=True)
    rest_s = _LEAST_REST_S
    while not stop.wait(rest_s):
        began_at = time.monotonic()
        store.read(watch.look)
        rest_s = max(_LEAST_REST_S, _REST * (time.monotonic() - began_at))
    store.close()
    sys.stdout.write(json.dumps({"looks": watch.looks, "lsns": len(watch.lsns), "faults": watch.faults[:10]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
