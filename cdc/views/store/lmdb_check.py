"""Whether a store in a folder holds what was written to it: all of it is read, in a process of its own.

LMDB trusts its file. Where a page of its tree is damaged, it may miss rows, walk in circles or end the process; what it
reads is checked by its sum, but rows that it does not find have none. So, before a process writes to a store, and when
one that reads it was ended by a signal, everything is read once: keys must rise, every sum must fit, and there must be
as many entries as the catalog says of each space. That takes some 0.6 µs of CPU for each entry.

What is not read: LMDB's list of free pages.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import lmdb

from cdc.base.errors import StoreDamaged, StoreUnavailable
from cdc.views.store.lmdb_spaces import SpacesReading

_FOUND: Final = 3

DAMAGE: Final = (
    StoreDamaged,
    lmdb.CorruptedError,
    lmdb.CursorFullError,  # pages that lead to one another in a circle
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""What is raised where the file's pages are not what was written."""

CRASHES: Final = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""By which a process ends that believes such pages."""

_LONGEST_S: Final = 60.0
_BYTES_PER_S: Final = 4 << 20
"""Far below what the slowest disk gives. Whoever takes longer goes round in circles."""


def problem_of(path: Path) -> str:
    """What is wrong with the store in that folder; empty when all of it is as it was written.

    Raises:
        StoreUnavailable: it could not be looked at.
    """
    size = (path / "data.mdb").stat().st_size
    limit_s = _LONGEST_S + size / _BYTES_PER_S
    command = [sys.executable, "-m", "cdc.views.store.lmdb_check", str(path)]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it could not be read in {limit_s:.0f} s"
    if ran.returncode == 0:
        return ""
    if ran.returncode == _FOUND:
        return ran.stdout.strip()
    if -ran.returncode == signal.SIGBUS:
        return f"data.mdb has {size:,} bytes, and had more"
    if -ran.returncode in CRASHES:
        return f"reading all of it ends in {signal.Signals(-ran.returncode).name}"
    raise StoreUnavailable(
        f"the store in {path} could not be looked through: {ran.stderr.strip()[-500:]}",
        remedy="cdc tries again by itself; if that does not help, is there memory for one more process?",
    )


def length_of(environment: lmdb.Environment) -> int:
    """Bytes of its file with all pages. LMDB does not write those at the end that are free by the time of a commit."""
    return (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]


def found_in(path: Path) -> str:
    """As ``problem_of``, in this process: it may end by a signal."""
    try:
        with lmdb.open(str(path), map_size=0, readonly=True, create=False) as opened, opened.begin() as transaction:
            return _problem(SpacesReading(transaction), transaction.stat()["entries"])
    except DAMAGE as error:
        return str(error)


def _problem(reading: SpacesReading, entries: int) -> str:
    counts: Counter[int] = Counter()
    leads: dict[int, int] = {}
    for number, following in reading:
        if following is None:
            counts[number] += 1
        else:
            leads[following] = number
    if (found := sum(counts.values()) + len(leads)) != entries:
        return f"{found:,} of {entries:,} entries are there"
    for number in sorted(leads, reverse=True):  # what leads on has a smaller number
        counts[leads[number]] += counts.pop(number, 0)
    for space, (number, count) in reading.places.items():
        if counts[number] != count:
            return f"{counts[number]:,} of {count:,} entries of {space} are there"
    return ""


if __name__ == "__main__":
    said = found_in(Path(sys.argv[1]))
    sys.stdout.write(said)
    sys.exit(_FOUND if said else 0)
