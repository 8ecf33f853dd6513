"""The broker's jars: which ones is committed in ``kafka.lock``, fetched once per user, refused when a byte differs."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from cdc.errors import StackError
from cdc.stack.cache import Say, cache_dir, make_once, silent

KAFKA_LOCK = Path(__file__).with_name("kafka.lock")

_PARALLEL_DOWNLOADS = 8
_PROGRESS_INTERVAL_S = 2.0
_REQUEST_TIMEOUT_S = 60


class Artefact(NamedTuple):
    """One line of the lock."""

    group: str
    name: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


Download = Callable[[Artefact, Path], Path]
"""Puts an artefact somewhere below the directory and says where."""


def read_lock(path: Path = KAFKA_LOCK) -> list[Artefact]:
    """The lock's artefacts: lines of ``group:name:version sha256 size``, ``#`` starts a comment line."""
    artefacts = []
    for line in path.read_text(encoding="ascii").splitlines():
        if line.strip() and not line.startswith("#"):
            coordinates, sha256, size = line.split()
            group, name, version = coordinates.split(":")
            artefacts.append(Artefact(group, name, version, sha256, int(size)))
    return artefacts


def kafka_version(artefacts: Sequence[Artefact]) -> str:
    """Version of the broker among the artefacts."""
    return next(artefact.version for artefact in artefacts if artefact.name.startswith("kafka_"))


def kafka_home(lock: Path = KAFKA_LOCK) -> Path:
    """Where everything made from this lock is cached; jars are in ``libs`` below it. Another lock, another place."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    return cache_dir() / f"kafka-{kafka_version(read_lock(lock))}-{digest}"


def fetch_jars(lock: Path = KAFKA_LOCK, *, say: Say = silent, download: Download | None = None) -> Path:
    """The directory with every jar of the lock, downloaded and checked at the first call.

    Args:
        lock: the committed list.
        say: told about the progress of a download every few seconds.
        download: how to get one artefact; by default the resolver library ``jgo`` with the user's own repositories
            (its configuration file) before its default one.

    Raises:
        StackError: an artefact cannot be had, or is not the locked one.
    """

    def make(directory: Path) -> None:
        repository = directory / "repository"
        _fetch_all(read_lock(lock), directory, download or _resolver_download(repository), say)
        shutil.rmtree(repository, ignore_errors=True)

    return make_once(kafka_home(lock), make) / "libs"


def _fetch_all(artefacts: Sequence[Artefact], directory: Path, download: Download, say: Say) -> None:
    libs = directory / "libs"
    libs.mkdir()
    total_bytes = sum(artefact.size_bytes for artefact in artefacts)
    title = f"Kafka {kafka_version(artefacts)}: "
    say(f"{title}downloading {len(artefacts)} jars, {total_bytes / 1e6:.0f} MB (once)")
    done_bytes, told_at = 0, time.monotonic()
    with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
        waiting = {pool.submit(_fetch_one, artefact, directory, libs, download): artefact for artefact in artefacts}
        try:
            for count, finished in enumerate(as_completed(waiting), start=1):
                finished.result()
                done_bytes += waiting[finished].size_bytes
                if time.monotonic() - told_at > _PROGRESS_INTERVAL_S or count == len(artefacts):
                    told_at = time.monotonic()
                    say(
                        f"{title}{count} of {len(artefacts)} jars, {done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB"
                    )
        except BaseException:
            # Ctrl-C or the first failure: the rest is not wanted any more.
            pool.shutdown(cancel_futures=True)
            raise


def _fetch_one(artefact: Artefact, directory: Path, libs: Path, download: Download) -> None:
    coordinates = f"{artefact.group}:{artefact.name}:{artefact.version}"
    try:
        file = download(artefact, directory)
    except (OSError, RuntimeError) as error:
        raise StackError(
            f"cannot download {coordinates}: {error}",
            remedy="check the network and the proxy (HTTPS_PROXY), name a mirror in jgo's configuration, "
            "or set CDC_KAFKA to a broker of yours",
        ) from error
    content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if (found, len(content)) != (artefact.sha256, artefact.size_bytes):
        raise StackError(
            f"{coordinates} is not the file in the lock: sha256 {found}, {len(content)} bytes, "
            f"expected {artefact.sha256}, {artefact.size_bytes} bytes",
            remedy="a mirror or proxy altered it, or the download broke off: try again, then ask who runs the mirror",
        )
    file.replace(libs / artefact.file_name)


def _resolver_download(repository: Path) -> Download:
    if importlib.util.find_spec("jgo") is None:
        raise StackError(
            "the library that downloads Kafka is not installed",
            remedy="pip install 'cdc-bridge[embedded]', or set CDC_KAFKA to a broker of yours",
        )
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    default = MavenContext(repo_cache=repository)
    remotes = {**GlobalSettings.load().repositories, **default.remote_repos}
    context = MavenContext(repo_cache=repository, remote_repos=remotes, timeout=_REQUEST_TIMEOUT_S)

    def download(artefact: Artefact, _directory: Path) -> Path:
        component = context.project(artefact.group, artefact.name).at_version(artefact.version)
        return Path(component.artifact().resolve())

    return download
