"""Downloads Maven artefacts that a committed lock names, from the user's own mirrors, and refuses any that differ."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from cdc.base.errors import StackError
from cdc.base.extras import install
from cdc.lab.stack.cache import Say

_PARALLEL_DOWNLOADS = 8
_PROGRESS_INTERVAL_S = 2.0
_REQUEST_TIMEOUT_S = 60


class Artefact(NamedTuple):
    """One line of a lock file."""

    group: str
    name: str
    version: str
    sha256: str
    size_bytes: int
    classifier: str = ""
    packaging: str = "jar"

    @property
    def file_name(self) -> str:
        of_several = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{of_several}.{self.packaging}"


Download = Callable[[Artefact, Path], Path]
"""Downloads an artefact to somewhere below the directory, and returns the path."""


def read_lock(path: Path) -> list[Artefact]:
    """Read a lock: lines of ``group:name:version sha256 size``, and comment lines that start with ``#``.

    What is not the jar of its name has two more coordinates: ``group:name:version:classifier:packaging``.
    """
    artefacts = []
    for line in path.read_text(encoding="ascii").splitlines():
        if line.strip() and not line.startswith("#"):
            coordinates, sha256, size = line.split()
            group, name, version, *other_file = coordinates.split(":")
            artefacts.append(Artefact(group, name, version, sha256, int(size), *other_file))
    return artefacts


def fetch(
    artefacts: Sequence[Artefact], target: Path, *, what: str, instead: str, say: Say, download: Download | None
) -> None:
    """Download artefacts into the directory ``target``, and check them.

    Args:
        artefacts: the artefacts, with their expected sizes and checksums.
        target: an existing directory; ``<target>/../repository`` is used during the download.
        what: the program that they belong to, with its version.
        instead: the end of a remedy, "…, or …": what to do without the download.
        say: called with the progress every few seconds.
        download: how to get one artefact; by default the library ``jgo``, which tries the user's own repositories
            (from its configuration file) before its default one.

    Raises:
        StackError: an artefact cannot be downloaded, or differs from the locked one.
    """
    repository = target.with_name("repository")
    download = download or _resolver_download(repository, what, instead)
    total_bytes = sum(artefact.size_bytes for artefact in artefacts)
    say(f"{what}: downloading {len(artefacts)} jars, {total_bytes / 1e6:.0f} MB (once)")
    done_bytes, told_at = 0, time.monotonic()
    with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
        waiting = {pool.submit(_fetch_one, each, repository, target, instead, download): each for each in artefacts}
        try:
            for count, finished in enumerate(as_completed(waiting), start=1):
                finished.result()
                done_bytes += waiting[finished].size_bytes
                if time.monotonic() - told_at > _PROGRESS_INTERVAL_S or count == len(artefacts):
                    told_at = time.monotonic()
                    of_bytes = f"{done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB"
                    say(f"{what}: {count} of {len(artefacts)} jars, {of_bytes}")
        except BaseException:
            # After Ctrl-C or the first failure, do not start the downloads that are still waiting.
            pool.shutdown(cancel_futures=True)
            raise
    shutil.rmtree(repository, ignore_errors=True)


def _fetch_one(artefact: Artefact, repository: Path, target: Path, instead: str, download: Download) -> None:
    coordinates = f"{artefact.group}:{artefact.name}:{artefact.version}"
    repository.mkdir(exist_ok=True)
    try:
        file = download(artefact, repository)
    except (OSError, RuntimeError) as error:
        raise StackError(
            f"cannot download {coordinates}: {error}",
            remedy=f"check the network and the proxy (HTTPS_PROXY), name a mirror in jgo's configuration, or {instead}",
        ) from error
    content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if (found, len(content)) != (artefact.sha256, artefact.size_bytes):
        raise StackError(
            f"{coordinates} is not the file in the lock: sha256 {found}, {len(content)} bytes, "
            f"expected {artefact.sha256}, {artefact.size_bytes} bytes",
            remedy="a mirror or proxy altered it, or the download broke off: try again, then ask who runs the mirror",
        )
    file.replace(target / artefact.file_name)


def _resolver_download(repository: Path, what: str, instead: str) -> Download:
    if importlib.util.find_spec("jgo") is None:
        raise StackError(
            f"the library that downloads {what} is not installed",
            remedy=f"{install('embedded')}; or {instead}",
        )
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    default = MavenContext(repo_cache=repository)
    remotes = {**GlobalSettings.load().repositories, **default.remote_repos}
    context = MavenContext(repo_cache=repository, remote_repos=remotes, timeout=_REQUEST_TIMEOUT_S)

    def download(artefact: Artefact, _directory: Path) -> Path:
        component = context.project(artefact.group, artefact.name).at_version(artefact.version)
        return Path(component.artifact(artefact.classifier, artefact.packaging).resolve())

    return download
