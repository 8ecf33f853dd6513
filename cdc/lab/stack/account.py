"""Finds the account that a server runs under: PostgreSQL refuses root, and needs a user id that has a name."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_LAUNCHER = Path(__file__).with_name("launcher.py")
_NOBODY_ID = 65534


class Account(NamedTuple):
    """A way to run a program: under the user id ``uid`` (None for our own), with ``prefix`` before the command."""

    name: str
    uid: int | None = None
    gid: int | None = None
    prefix: tuple[str, ...] = ()

    def command(self, arguments: Sequence[str | Path], *, death_signal: int = 0) -> list[str]:
        """Returns the full command that runs ``arguments`` under this account.

        Args:
            arguments: the program (an absolute path) and its arguments.
            death_signal: the signal that the program gets when this process ends in any way; 0 for none. This works on
                Linux only, and only from the main thread: to the kernel, the parent is the *thread* that started it.
        """
        if threading.current_thread() is not threading.main_thread():
            death_signal = 0
        switch = (-1, -1) if self.uid is None else (self.uid, self.gid)
        launch = [sys.executable, "-IS", str(_LAUNCHER), str(death_signal), str(os.getpid()), *map(str, switch)]
        return [*launch, *self.prefix, *map(str, arguments)]

    def give(self, directory: Path) -> None:
        """Make this account the owner of a directory."""
        if os.geteuid() == 0:
            os.chown(directory, self.uid or 0, self.gid or 0)

    def can_run(self, program: Path, directory: Path, environment: Mapping[str, str]) -> bool:
        """Whether ``program --version`` runs in ``directory``. It tries, because too many things can prevent it."""
        try:
            probe = subprocess.run(
                self.command([program, "--version"]), cwd=directory, env=environment, capture_output=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return probe.returncode == 0


CURRENT = Account("the current account")


def unprivileged() -> list[Account]:
    """Returns the accounts that may run PostgreSQL, best first; empty if there is none."""
    # In a user namespace, PostgreSQL sees nobody instead of root, but can still read the same files.
    unshare = shutil.which("unshare")
    ids = (f"--map-user={_NOBODY_ID}", f"--map-group={_NOBODY_ID}")
    namespace = [Account("a user namespace", prefix=(unshare, "--user", *ids))] if unshare else []
    if os.geteuid() == 0:
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            return namespace
        return [Account("nobody", nobody.pw_uid, nobody.pw_gid), *namespace]
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return namespace  # initdb: "could not look up effective user ID"
    return [CURRENT]
