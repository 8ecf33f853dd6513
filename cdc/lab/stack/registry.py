"""An embedded Apicurio Registry, which speaks Confluent's API of a schema registry (``registry.lock``).

It runs on Quarkus. Each of its settings may be a Java property:
https://www.apicur.io/registry/docs/apicurio-registry/3.2.x/getting-started/assembly-config-reference.html
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import signal
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Self

from cdc.lab.stack.account import CURRENT
from cdc.lab.stack.artefacts import Download, fetch, read_lock
from cdc.lab.stack.cache import Say, cache_dir, make_once, silent
from cdc.lab.stack.embedded import HOST, EmbeddedServer, free_port
from cdc.lab.stack.java import ClassArchive, Java, find_java
from cdc.lab.stack.running import ServerRecord, sweep

REGISTRY_LOCK = Path(__file__).with_name("registry.lock")

_JAVA = 21  # Apicurio Registry 3.3
_HEAP_MB = 192
CONFLUENT_PATH = "/apis/ccompat/v7"
_INSTEAD = "set CDC_REGISTRY_URL to your own registry"

_SETTINGS: Mapping[str, str] = {
    "quarkus.http.host": HOST,
    # Health and metrics have a port of their own, which cannot be turned off.
    "quarkus.management.host": HOST,
    # Twenty connections to the database in its own process are for many clients.
    "apicurio.datasource.jdbc.initial-size": "1",
    "apicurio.datasource.jdbc.min-size": "1",
    "apicurio.datasource.jdbc.max-size": "8",
    # Without a terminal it would draw its name in the log as well.
    "quarkus.banner.enabled": "false",
}


class RegistryServer(EmbeddedServer):
    """A schema registry on the loopback address, without authentication. It keeps ids through ``kill`` and restarts."""

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM,)
    _death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, record: ServerRecord, java: Java, app: Path, *, say: Say, detached: bool) -> None:
        super().__init__(record, CURRENT, detached=detached)
        self.name = "the schema registry"
        self._java = java
        self._app = app
        self._archive = ClassArchive(java, app.parent, say)
        self._settings: Mapping[str, str] = {}

    @classmethod
    def open(cls, *, settings: Mapping[str, str] | None = None, detached: bool = False, say: Say = silent) -> Self:
        """Start a new, empty registry; downloads it if it is not in the cache.

        Args:
            settings: settings of Apicurio Registry and of Quarkus, in addition to its own.
            detached: let the registry outlive this process.
            say: called before anything that takes long.

        Raises:
            StackError: there is no Java, the registry cannot be downloaded, or it did not start.
        """
        sweep()
        java, app = find_java(_JAVA), fetch_registry(say=say)
        server = cls(ServerRecord("Registry", detached=detached), java, app, say=say, detached=detached)
        server._settings = {**_SETTINGS, **(settings or {})}
        try:
            return server.start()
        except BaseException:
            server.close()
            raise

    @property
    def url(self) -> str:
        """The URL for clients of Confluent's API."""
        return f"http://{HOST}:{self.port}{CONFLUENT_PATH}"

    def stop(self) -> None:
        """Stop the registry, with SIGKILL after 15 seconds; does nothing if it is not running."""
        super().stop()
        self._archive.keep()

    def command(self) -> list[str | Path]:
        settings = {
            "java.io.tmpdir": str(self.directory),
            "apicurio.import.work-dir": str(self.directory),
            "quarkus.http.port": str(self.port),
            "quarkus.management.port": str(free_port()),
            # By default the schemas are in memory. A file keeps them, at once and not after half a second.
            "apicurio.datasource.url": f"jdbc:h2:file:{self.directory}/registry;WRITE_DELAY=0",
            **self._settings,
        }
        # The first compiler only, as the broker of the tests: the second one has nothing to do for a few requests.
        java = [str(self._java.executable), "-XX:+UseSerialGC", f"-Xmx{_HEAP_MB}m", "-XX:TieredStopAtLevel=1"]
        archive = self._archive.flags(train=not self._detached)
        properties = [f"-D{name}={value}" for name, value in settings.items()]
        return [*java, *archive, "-XX:+ExitOnOutOfMemoryError", *properties, "-jar", self._app / "quarkus-run.jar"]

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _answers(self) -> bool:
        return registry_answers(self.url)


def registry_answers(url: str, timeout_s: float = 2) -> bool:
    """Whether a schema registry answers at this URL of Confluent's API, if only to say that one must log in."""
    # Not through the proxy that the environment may name
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{url}/subjects", timeout=timeout_s).close()
    except urllib.error.HTTPError as error:
        return error.code == HTTPStatus.UNAUTHORIZED
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


def fetch_registry(*, say: Say = silent, download: Download | None = None) -> Path:
    """Returns the folder of the program; the first call downloads, checks and unpacks it.

    Args:
        say: called with the progress of the download.
        download: how to get the artefact; see ``artefacts.fetch``.

    Raises:
        StackError: it cannot be downloaded, or differs from the locked one.
    """
    [artefact] = read_lock(REGISTRY_LOCK)

    def make(directory: Path) -> None:
        packed = directory / "packed"
        packed.mkdir()
        what = f"Apicurio Registry {artefact.version}"
        fetch([artefact], packed, what=what, instead=_INSTEAD, say=say, download=download)
        with tarfile.open(packed / artefact.file_name, "r:gz") as archive:
            # Python before 3.11.4 has no filters. The lock vouches for the content, so only odd file modes matter here.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            archive.extractall(directory / "app")
        shutil.rmtree(packed)

    digest = hashlib.sha256(REGISTRY_LOCK.read_bytes()).hexdigest()[:12]
    return make_once(cache_dir() / f"registry-{artefact.version}-{digest}", make) / "app"
