"""Look one key up in a process of its own: ``python -m cdc.ops.dashboard.inspecting``.

A lookup reads a partition to its end, which may take seconds of CPU. In the bridge's process, the stream would have to
wait for that. The arguments come through standard input and not on the command line, because they contain passwords.
"""

from __future__ import annotations

import os
import pickle
import shlex
import signal
import subprocess
import sys
import threading
from typing import Any, Final

import orjson
import structlog

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.base.web.problem import Problem, sentences

_LONGEST_S: Final = 60.0
"""How long a lookup may take. Nobody waits longer in a browser; for a larger partition there is ``cdc get``."""
_NICENESS: Final = 10

log = structlog.get_logger("cdc.dashboard")


class Inspector:
    """Looks up one key at a time; a second caller is asked to try again."""

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def look_up(self, config: Config, table: str, key: str) -> dict[str, Any]:
        """Returns what is known about a key.

        Args:
            config: the deployment's configuration.
            table: ``namespace.table``.
            key: the key as people write it.

        Raises:
            Problem: ``malformed-key``, ``too-slow``, ``store-away``, or ``not-yet`` while another key is looked up.
        """
        if not self._busy.acquire(blocking=False):
            raise Problem("not-yet", "Another key is being looked up. Try again in a moment.", [(b"retry-after", b"2")])
        try:
            return _asked(config, table, key)
        finally:
            self._busy.release()


def _asked(config: Config, table: str, key: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "cdc.ops.dashboard.inspecting"]
    try:
        done = subprocess.run(
            command, input=pickle.dumps((config, table, key)), capture_output=True, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Problem(
            "too-slow",
            f"Reading the partition takes longer than {_LONGEST_S:.0f} s. Use: cdc get {shlex.quote(table)} KEY",
        ) from None
    if done.returncode != 0:
        log.error(
            "the dashboard could not look up a key",
            error=done.stderr.decode(errors="replace")[-2000:],
            remedy="fix what the error says; cdc get shows the same key on a terminal",
        )
        raise Problem("our-bug", "The lookup failed, and the log says why. Please report it.")
    answer: dict[str, Any] = orjson.loads(done.stdout)
    if refused := answer.get("refused"):
        raise Problem("malformed-key" if answer["is_question"] else "store-away", refused)
    return answer


def main() -> None:
    """Read the question from standard input, and write the answer to standard output."""
    from cdc.base.errors import ConfigError
    from cdc.ops.dashboard.key_facts import key_facts

    os.nice(_NICENESS)
    signal.alarm(round(_LONGEST_S))  # the daemon may be gone by then, and could not kill this process
    config, table, key = pickle.loads(sys.stdin.buffer.read())
    try:
        answer = key_facts(config, table, key)
    except CdcError as error:
        answer = {"refused": sentences(error.message, error.remedy), "is_question": isinstance(error, ConfigError)}
    sys.stdout.buffer.write(orjson.dumps(answer))


if __name__ == "__main__":
    main()
