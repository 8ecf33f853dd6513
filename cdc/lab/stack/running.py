"""Records of the servers that this user's processes started, so that none is ever left behind.

Each server has one file under ``<cache>/running``. The process that owns the server holds a lock on that file for as
long as it lives; the kernel lets go of it even after SIGKILL. So a record that can be locked has no owner any more, and
whoever starts a server next stops what is left of it and removes its directory. A detached server has no owner
from the start: it lives until ``cdc stack down`` or until its process is gone.
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
"""Free there, or a folder on disk is used: a container has 64 MB by default."""
_STOP_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.03


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """One server as its record tells it. ``pid`` is 0 before the start; ``container`` is a Docker id or empty."""

    server: str
    directory: str = ""
    url: str = ""
    pid: int = 0
    stop_signal: int = signal.SIGKILL
    container: str = ""
    detached: bool = False

    def process(self) -> psutil.Process | None:
        """The server's process, if it still runs. Its random directory in the command line says that it is ours."""
        if not self.pid:
            return None
        try:
            process = psutil.Process(self.pid)
            return process if any(self.directory in argument for argument in process.cmdline()) else None
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return None

    def is_alive(self) -> bool:
        """Whether it still runs; a container counts as running until it is removed."""
        return bool(self.container) or self.process() is not None


class ServerRecord:
    """The record of a server that this process owns, and the private directory that belongs to it.

    Args:
        server: its name.
        detached: it outlives this process.
        in_memory: the directory may be gone after a crash of the machine; in memory, where there is room, hundreds of
            files are made and deleted in no time, which a PostgreSQL does for each database.
    """

    def __init__(self, server: str, *, detached: bool = False, in_memory: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="cdc-stack-", dir=_memory() if in_memory else None))
        self._running = Running(server, directory=str(self.directory), detached=detached)
        path = _records() / f"{self.directory.name}.json"
        unlocked = path.with_suffix(".new")
        self._file = unlocked.open("w", encoding="utf-8")
        # Locked before it can be seen, so that a sweep never takes it for an orphan.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.path = unlocked.replace(path)
        self.update()

    def update(self, **changes: str | int) -> None:
        """Write down what became known of the server (fields of ``Running``)."""
        # A field's name decides the type of its value.
        self._running = dataclasses.replace(self._running, **changes)  # type: ignore[arg-type]
        self._file.seek(0)
        self._file.write(json.dumps(dataclasses.asdict(self._running)))
        self._file.truncate()
        self._file.flush()

    def remove(self) -> None:
        """Forget the server; its directory goes too."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        self._file.close()


def _memory() -> Path | None:
    """A folder in memory; None where there is none that has room."""
    try:
        has_room = os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free >= _ROOM_BYTES
    except OSError:
        return None
    return _IN_MEMORY if has_room else None


def running() -> list[Running]:
    """What is recorded now, swept or not."""
    return [entry for path in sorted(_records().glob("*.json")) if (entry := _read(path)) is not None]


def sweep() -> list[Running]:
    """Stop servers whose owner is gone and remove their directories; returns what was swept."""
    swept = []
    for path, entry in _ownerless():
        if entry.detached and entry.is_alive():
            continue
        _end(entry, graceful=False)
        path.unlink(missing_ok=True)
        swept.append(entry)
    return swept


def stop_detached() -> list[Running]:
    """Stop every detached server and remove its directory; returns what was stopped."""
    stopped = []
    for path, entry in _ownerless():
        if entry.detached:
            _end(entry, graceful=True)
            path.unlink(missing_ok=True)
            stopped.append(entry)
    return stopped


def kill_tree(process: psutil.Process, timeout_s: float = _STOP_TIMEOUT_S) -> None:
    """SIGKILL a process and its descendants, and return when all of them have ended."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    _wait_for_end(family, timeout_s)


def _wait_for_end(processes: Iterable[psutil.Process], timeout_s: float) -> None:
    """What is not our child stays listed until its parent asks, which a container's first process may never do."""
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
    """A record, or None when its owner is just writing or removing it."""
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
