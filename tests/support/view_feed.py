"""``python -m tests.support.view_feed CONFIG``: what fills a view, as a process that tests kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cdc.base import crashpoints
from cdc.base.config import load
from cdc.base.daemon.logs import configure
from cdc.base.daemon.supervise import stop_on_signals
from cdc.views.feed.run import run_feeds
from tests.support.bridge_process import CdcProcess


class ViewProcess(CdcProcess):
    """The feeds of a view.

    Args:
        config: the YAML file.
        log: where its output goes.
    """

    def __init__(self, config: Path, log: Path) -> None:
        super().__init__("view", config, log)

    def _start(self, extra_environment: Mapping[str, str]) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.view_feed", self._config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **extra_environment},
            )


def main(path: Path) -> None:
    """Until SIGTERM."""
    if specification := os.environ.get("CDC_CRASHPOINT"):
        crashpoints.arm(specification)
    config = load(path, {})
    configure("info", config.secrets())
    run_feeds(config, stop_on_signals())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
