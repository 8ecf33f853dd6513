"""Records of the servers that this user's processes started, so that no server outlives its owner for long.

Each server has one file under ``<cache>/running``. The process that owns the server holds a lock on this file for as
long as it lives; the kernel releases the lock even after SIGKILL. So if a record can be locked, its owner is gone. The
next process that starts a server then stops the orphan and removes its directory. A detached server has no owner once
``cdc stack up --detach`` has ended: it lives until ``cdc stack down``, or until its process is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

import psutil

from cdc.lab.stack.cache import cache_dir
from cdc.lab.stack.engine import remove_container

_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30
"""The space that must be free there, or a folder on disk is used: in a container, /dev/shm has 64 MB by default."""
_STOP_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.03


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """The content of a server's record. ``pid`` is 0 before the start; ``container`` is a Docker id or empty."""

    server: str
    directory: str = ""
    url: str = ""
    pid: int = 0
    stop_signal: int = signal.SIGKILL
    container: str = ""
    detached: bool = False

    def process(self) -> psutil.Process | None:
        """Returns the server's process if it is still running.

        The pid may have been reused, so the command line must contain the server's directory, which has a random name.
        """
        if not self.pid:
            return None
        try:
            process = psutil.Process(self.pid)
            return process if any(self.directory in argument for argument in process.cmdline()) else None
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return None

    def is_alive(self) -> bool:
        """Whether the server is still running; a container counts as running until it is removed."""
        return bool(self.container) or self.process() is not None


class ServerRecord:
    """The record of a server that this process owns, and the server's private directory.

    Args:
        server: the server's name.
        detached: whether the server outlives this process.
        in_memory: put the directory into memory if there is room, so that a crash of the machine loses it. PostgreSQL
            creates and deletes hundreds of files for each database, which is much faster in memory.
    """

    def __init__(self, server: str, *, detached: bool = False, in_memory: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="cdc-stack-", dir=_memory() if in_memory else None))
        self._running = Running(server, directory=str(self.directory), detached=detached)
        path = _records() / f"{self.directory.name}.json"
        unlocked = path.with_suffix(".new")
        self._file = unlocked.open("w", encoding="utf-8")
        # Lock the file before it gets its final name, so that a sweep never takes it for an orphan's.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.path = unlocked.replace(path)
        self.update()

    def update(self, **changes: str | int) -> None:
        """Record what is now known about the server (fields of ``Running``)."""
        # mypy cannot see that each value has the type of the field that its name says.
        self._running = dataclasses.replace(self._running, **changes)  # type: ignore[arg-type]  # keywords, checked when it runs
        self._file.seek(0)
        self._file.write(json.dumps(dataclasses.asdict(self._running)))
        self._file.truncate()
        self._file.flush()

    def remove(self) -> None:
        """Delete the record and the server's directory."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        self._file.close()


def _memory() -> Path | None:
    """Returns a folder in memory; None if there is none with enough room."""
    try:
        has_room = os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free >= _ROOM_BYTES
    except OSError:
        return None
    return _IN_MEMORY if has_room else None


def running() -> list[Running]:
    """Returns everything that is recorded now, orphans included."""
    return [entry for path in sorted(_records().glob("*.json")) if (entry := _read(path)) is not None]


def sweep() -> list[Running]:
    """Stop servers whose owner is gone, and remove their directories; returns these servers."""
    swept = []
    for path, entry in _ownerless():
        if entry.detached and entry.is_alive():
            continue
        _end(entry, graceful=False)
        path.unlink(missing_ok=True)
        swept.append(entry)
    return swept


def stop_detached() -> list[Running]:
    """Stop all detached servers, and remove their directories; returns these servers."""
    stopped = []
    for path, entry in _ownerless():
        if entry.detached:
            _end(entry, graceful=True)
            path.unlink(missing_ok=True)
            stopped.append(entry)
    return stopped


def kill_tree(process: psutil.Process, timeout_s: float = _STOP_TIMEOUT_S) -> None:
    """Kill a process and its descendants, and return when all of them have ended."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    _wait_for_end(family, timeout_s)


def _wait_for_end(processes: Iterable[psutil.Process], timeout_s: float) -> None:
    """Wait until processes have ended; zombies count as ended.

    A process that is not our child remains a zombie until its parent waits for it. In a container, the first process
    may be its parent, and may never do so.
    """
    deadline = time.monotonic() + timeout_s
    for process in processes:
        while not _has_ended(process) and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL_S)


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _records() -> Path:
    path = cache_dir() / "running"
    path.mkdir(exist_ok=True)
    return path


def _read(path: Path) -> Running | None:
    """Returns a record; None if its owner is just writing or removing it."""
    try:
        return Running(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _ownerless() -> Iterator[tuple[Path, Running]]:
    for path in sorted(_records().glob("*.json")):
        with contextlib.ExitStack() as cleanup:
            try:
                file: TextIO = cleanup.enter_context(path.open(encoding="utf-8"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            entry = _read(path)
            if entry is not None:
                yield path, entry


def _end(entry: Running, *, graceful: bool) -> None:
    if entry.container:
        remove_container(entry.container)
    process = entry.process()
    if process is not None and process.pid != os.getpid():
        with contextlib.suppress(psutil.NoSuchProcess):
            if graceful:
                process.send_signal(entry.stop_signal)
                _wait_for_end([process], _STOP_TIMEOUT_S)
        kill_tree(process)
    shutil.rmtree(entry.directory, ignore_errors=True)
