"""A command at a terminal, and somebody who answers what it asks."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 60.0


def answer(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], answers: Sequence[tuple[str, str]]
) -> tuple[int, str]:
    """Run a command; whenever it has asked, type the answer.

    Args:
        words: of the command.
        folder: where it runs.
        environment: for it.
        answers: in their order: text that a question holds, and what is typed then.

    Returns:
        Its exit code, and all that stood on the terminal.
    """
    ours, its = pty.openpty()
    process = subprocess.Popen(
        list(words), cwd=folder, env=environment, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    shown, seen_to, open_answers = "", 0, list(answers)
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            if open_answers and open_answers[0][0] in shown[seen_to:]:
                question, text = open_answers.pop(0)
                seen_to = shown.index(question, seen_to) + len(question)
                os.write(ours, f"{text}\n".encode())
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(ours, 65_536)
            except OSError:  # Linux says so when the last process closed the other end
                break
            if not data:
                break
            shown += data.decode(errors="replace").replace("\r\n", "\n")
        assert not open_answers, f"never asked {open_answers[0][0]!r}\n{shown}"
        return process.wait(_TIMEOUT_S), shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
