"""The dashboard of a daemon, handed to it by its command: a daemon does not know the rooms that the page asks."""

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
    """The configuration as the file has it now, for ``cdc status`` reads it anew each time, and must say the same.

    Args:
        path: of the file.
        loaded: what was read of it at the start.
    """

    def __init__(self, path: Path | None, loaded: Config) -> None:
        self._path = path
        self.path: Final = (path or DEFAULT_PATH).absolute()
        self._config = loaded
        self._stamp = self._look()

    def __call__(self) -> Config:
        """Read again when the file changed; a file that is wrong changes nothing."""
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
    """The pages of this daemon."""
    # Imported here: a daemon without a port needs none of it.
    from cdc.ops.dashboard.opening import daemon_pages

    return partial(daemon_pages, FileAsItIs(path, loaded), role)
