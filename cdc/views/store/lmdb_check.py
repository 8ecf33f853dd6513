"""Checks whether a store in a folder holds what was written to it, by reading all of it in a process of its own.

LMDB trusts its file. Where a page of its tree is damaged, LMDB may miss rows, walk in circles or crash the process.
Each value that it reads has a checksum, but rows that it does not find have none. So everything is read once before a
process writes to a store, and when a signal has ended a process that reads it: keys must ascend, every checksum must
fit, and each space must have as many entries as the catalog says. That takes about 0.6 µs of CPU for each entry.

LMDB's list of free pages is not checked.
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
"""Errors that mean that the file's pages are not what was written."""

CRASHES: Final = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""Signals that end a process which trusts damaged pages."""

_LONGEST_S: Final = 60.0
_BYTES_PER_S: Final = 4 << 20
"""A rate that even the slowest disk exceeds. A check that takes longer follows damaged pages in a circle."""


def problem_of(path: Path) -> str:
    """Returns what is wrong with the store in that folder; empty if all of it is as it was written.

    Raises:
        StoreUnavailable: the store could not be checked.
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
        return f"data.mdb has {size:,} bytes, but had more before"
    if -ran.returncode in CRASHES:
        return f"reading all of it ends with {signal.Signals(-ran.returncode).name}"
    raise StoreUnavailable(
        f"the store in {path} could not be checked: {ran.stderr.strip()[-500:]}",
        remedy="cdc tries again by itself; if that does not help, is there memory for one more process?",
    )


def length_of(environment: lmdb.Environment) -> int:
    """The length of the file with all its pages. At the end, LMDB leaves out those that are free at a commit."""
    return (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]


def found_in(path: Path) -> str:
    """Does what ``problem_of`` does, in this process, which a signal may end."""
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
        return f"{found:,} entries were found, but {entries:,} are recorded"
    for number in sorted(leads, reverse=True):  # inner spaces first: the space that leads to one has a smaller number
        counts[leads[number]] += counts.pop(number, 0)
    for space, (number, count) in reading.places.items():
        if counts[number] != count:
            return f"{counts[number]:,} entries of {space} were found, but {count:,} are recorded"
    return ""


if __name__ == "__main__":
    said = found_in(Path(sys.argv[1]))
    sys.stdout.write(said)
    sys.exit(_FOUND if said else 0)
