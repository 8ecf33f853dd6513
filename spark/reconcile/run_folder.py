"""The folder of a run: one run at a time, nothing in it of a run before, and no rows left when the run has ended.

``work/`` holds whole rows and the ledger of what is done. It goes when every table has its verdict. It stays for
``--resume`` when a run was killed or could not finish, but never of a run whose values are to be hidden: that one
cannot be resumed. What was not resumed goes with the next run: into the same folder, or, where each run gets a folder
of its own beside the others, of the same bridge.
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
"""As the command names them when nobody does."""
_OF_A_RUN: Final = ("differing", "after-repair")
"""Folders that a run leaves beside its report."""


class RunFolder:
    """A folder that this run has for itself.

    Attributes:
        work: where it keeps what it needs until it has ended.
    """

    def __init__(self, place: Path) -> None:
        self.work = place / _WORK
        self._is_done = False

    @property
    def identity(self) -> Path:
        """File that says which comparison was begun here."""
        return self.work / "run.json"

    def done(self) -> None:
        """Nothing is left for a resumed run."""
        self._is_done = True

    @property
    def is_done(self) -> bool:
        """Whether ``done`` was said."""
        return self._is_done


@contextmanager
def occupied(job: ReconcileJob) -> Iterator[RunFolder]:
    """The job's folder for the time of the block.

    Raises:
        JobError: it cannot be written, another run is in it, or there is nothing to resume.
    """
    place = Path(job.folder)
    if job.resume and job.redact:
        raise JobError(
            "--resume with --redact: a run that hides values keeps nothing to go on with",
            remedy="leave one of them out",
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JobError(
            f"{place} cannot be written: {error.strerror}", remedy="name another folder: --report"
        ) from error
    try:
        _take(lock, place)
        folder = RunFolder(place)
        if job.resume and not folder.identity.exists():
            raise JobError(f"{place} holds no run that could go on", remedy="leave --resume out to begin one")
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
    """Remove the rows that killed runs left in folders of their own: nobody goes back there."""
    for other in sorted(place.parent.iterdir()):
        if other == place or not _OWN_FOLDER.fullmatch(other.name) or not (other / _WORK).is_dir():
            continue
        try:
            lock = os.open(other / _LOCK, os.O_RDWR)
        except OSError:  # none of ours, or not ours to remove
            continue
        try:
            _take(lock, other)
            begun = read_identity(RunFolder(other).identity)
            # A run that has not noted what it is has read nothing yet. Another bridge's may still be resumed.
            if begun is None or begun.get(BRIDGE) == bridge:
                shutil.rmtree(other / _WORK, ignore_errors=True)
                sys.stderr.write(f"{other.name}: removed the rows that a run left there which was killed\n")
        except JobError:  # that run goes on
            continue
        finally:
            os.close(lock)


def _empty(place: Path) -> None:
    """Of an earlier run nothing may stay, or it would be read as this one's answer should this one break off."""
    for name in _OF_A_RUN:
        if (place / name).exists():
            shutil.rmtree(place / name)
    for name in NAMES:
        (place / name).unlink(missing_ok=True)
