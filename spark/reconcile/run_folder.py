"""Manages the folder of a run: only one run uses it, it keeps nothing of an earlier run, and no rows stay in it.

``work/`` holds whole rows and the ledger of finished passes. It is removed when every table has its verdict. It stays
for ``--resume`` if the run was killed or could not finish, except with ``--redact``: such a run cannot be resumed. If
nobody resumes it, the next run removes it: a run into the same folder, or, if each run gets a folder of its own, any
run of the same bridge beside it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError
from cdc.spark.reconcile.identity import BRIDGE, bridge_of, read_identity
from cdc.spark.report.write import NAMES

_LOCK: Final = ".cdc-reconcile.lock"
_WORK: Final = "work"
_OWN_FOLDER: Final = re.compile(r"reconcile-[0-9]{8}T[0-9]{6}Z")
"""The names that the command chooses for folders without ``--report``."""
_OF_A_RUN: Final = ("differing", "after-repair")
"""The folders that a run leaves beside its report."""


class RunFolder:
    """The folder that a run has to itself.

    Attributes:
        work: the folder for files that the run needs until it ends.
    """

    def __init__(self, place: Path) -> None:
        self.work = place / _WORK
        self._is_done = False

    @property
    def identity(self) -> Path:
        """The file that says which comparison was begun here."""
        return self.work / "run.json"

    def done(self) -> None:
        """Says that nothing is left to resume, so ``work`` can be removed."""
        self._is_done = True

    @property
    def is_done(self) -> bool:
        """True after ``done``."""
        return self._is_done


@contextmanager
def occupied(job: ReconcileJob) -> Iterator[RunFolder]:
    """Occupies the job's folder for the duration of the block.

    Raises:
        JobError: the folder is not writable, another run uses it, or there is nothing to resume.
    """
    place = Path(job.folder)
    if job.resume and job.redact:
        raise JobError(
            "--resume does not go with --redact: a run that hides values keeps nothing to resume from",
            remedy="leave one of the two out",
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JobError(
            f"cannot write to {place}: {error.strerror}", remedy="name another folder with --report"
        ) from error
    try:
        _take(lock, place)
        folder = RunFolder(place)
        if job.resume and not folder.identity.exists():
            raise JobError(f"{place} holds no run to resume", remedy="leave --resume out to begin a new one")
        _empty(place)
        if not job.resume:
            shutil.rmtree(folder.work, ignore_errors=True)
            if _OWN_FOLDER.fullmatch(place.name):
                _tidy_beside(place, bridge_of(job))
        folder.work.mkdir(exist_ok=True)
        try:
            yield folder
        finally:
            if folder.is_done or job.redact:
                shutil.rmtree(folder.work)
    finally:
        os.close(lock)


def _take(lock: int, place: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JobError(f"another run is writing into {place}", remedy="wait for it, or name another folder") from error


def _tidy_beside(place: Path, bridge: str) -> None:
    """Removes the rows that killed runs left in folders of their own: nobody would clean up there otherwise."""
    for other in sorted(place.parent.iterdir()):
        if other == place or not _OWN_FOLDER.fullmatch(other.name) or not (other / _WORK).is_dir():
            continue
        try:
            lock = os.open(other / _LOCK, os.O_RDWR)
        except OSError:  # not a folder of ours, or not ours to remove
            continue
        try:
            _take(lock, other)
            begun = read_identity(RunFolder(other).identity)
            # Without an identity the run has read nothing yet. A run of another bridge may still be resumed.
            if begun is None or begun.get(BRIDGE) == bridge:
                shutil.rmtree(other / _WORK, ignore_errors=True)
                sys.stderr.write(f"{other.name}: removed the rows that a killed run left there\n")
        except JobError:  # the lock is taken: that run is still going
            continue
        finally:
            os.close(lock)


def _empty(place: Path) -> None:
    """Removes an earlier run's results: if this run breaks off, they would be taken for its answer."""
    for name in _OF_A_RUN:
        if (place / name).exists():
            shutil.rmtree(place / name)
    for name in NAMES:
        (place / name).unlink(missing_ok=True)
