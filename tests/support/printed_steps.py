"""What ``cdc init`` prints, done to the letter: as by somebody who pastes one line after the other into a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 120
_MARK: Final = "Next steps:"


def printed_steps(output: str) -> list[str]:
    """The lines to paste: those behind the heading that are no comments."""
    _, mark, rest = output.partition(_MARK)
    assert mark, output
    return [line for line in rest.splitlines() if line.strip() and not line.startswith("#")]


def shell(*folders: Path) -> Mapping[str, str]:
    """An environment in which ``cdc`` is found, and what is in these folders."""
    path = [str(Path(sys.executable).parent), *map(str, folders), os.environ["PATH"]]
    return {**os.environ, "PATH": ":".join(path)}


def paste(line: str, folder: Path, environment: Mapping[str, str], typed: str = "") -> str:
    """Run a line to its end; what it printed.

    Args:
        line: of a shell.
        folder: where the shell is.
        environment: of ``shell``.
        typed: the answers to what it asks, for instance a password twice.
    """
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        start_new_session=True,  # no terminal: who asks for a password reads what is typed here
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def running(line: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Run a line that never ends, until SIGTERM at the end of the block, which it obeys; yields its log.

    Variables may stand before the command.
    """
    log = folder / f"{'-'.join(line.split()[:2])}.log"
    words = ["bash", "-c", f"exec env {line}"]
    with log.open("wb") as out:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield log
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
