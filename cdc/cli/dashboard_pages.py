"""Gives a daemon its dashboard. The command does this, because a daemon may not import what the page needs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from cdc.base.config import Config
from cdc.base.daemon.pages import OpenPages
from cdc.base.errors import CdcError
from cdc.cli.options import DEFAULT_PATH, load_again
from cdc.ops.status.processes import Role


class FileAsItIs:
    """Returns the configuration as it is in the file now, so that the page agrees with ``cdc status``.

    Args:
        path: the configuration file.
        loaded: its content at the start.
    """

    def __init__(self, path: Path | None, loaded: Config) -> None:
        self._path = path
        self.path: Final = (path or DEFAULT_PATH).absolute()
        self._config = loaded
        self._stamp = self._look()

    def __call__(self) -> Config:
        """Returns the configuration; reads the file again if it changed, and ignores it if it is invalid."""
        if (stamp := self._look()) != self._stamp:
            self._stamp = stamp
            try:
                self._config = load_again(self._path)
            except CdcError:
                return self._config
        return self._config

    def _look(self) -> tuple[int, int] | None:
        try:
            said = (self._path or DEFAULT_PATH).stat()
        except OSError:
            return None
        return said.st_mtime_ns, said.st_ino


def pages_of(role: Role, path: Path | None, loaded: Config) -> OpenPages:
    """Returns a function that opens the pages of a daemon."""
    # Imported here, because a daemon without a port needs none of it.
    from cdc.ops.dashboard.opening import daemon_pages

    return partial(daemon_pages, FileAsItIs(path, loaded), role)
