"""Ctrl-C in the first moments of a command: exit code 130, and not a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

# Counts imports by Python's audit events, and presses Ctrl-C during the one whose number is the first argument.
PROBE = """
import os, signal, sys
left = int(sys.argv.pop(1))
def count(event, arguments):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
from cdc.__main__ import main
sys.addaudithook(count)
main()
"""

# Sends itself the signal that the argument names.
ENDED = """
import os, signal, sys
from cdc.base import interrupts
interrupts.raise_at_every_polite_end()
try:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    print("goes on")
except KeyboardInterrupt:
    print("ends in good order")
"""

# --help does about 330 imports, the others more than 700.
PRESSED = [
    (("--help",), 1),
    (("--help",), 250),
    (("run",), 60),
    (("run",), 330),
    (("run",), 600),
    (("sink",), 690),
    (("check",), 450),
    (("status",), 520),
    (("backfill",), 480),
    (("reconcile",), 560),
    (("stack", "up"), 320),
    (("config", "show"), 400),
]


def started(arguments: tuple[str, ...], at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROBE, str(at), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("arguments", "at"), PRESSED, ids=str)
def test_ctrl_c_during_the_imports_is_a_quiet_end(arguments: tuple[str, ...], at: int) -> None:
    done = started(arguments, at)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_without_ctrl_c_the_same_command_says_something() -> None:
    done = started(("--help",), 1_000_000)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


def test_a_command_that_was_started_with_sigint_ignored_goes_on() -> None:
    command = [sys.executable, "-c", PROBE, "60", "--help"]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_with_servers_ends_in_good_order_at_every_polite_signal(name: str) -> None:
    command = [sys.executable, "-c", ENDED, name]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "ends in good order\n"
    ignoring = ["sh", "-c", f'trap "" {name[3:]}; exec "$@"', "sh", *command]
    assert subprocess.run(ignoring, capture_output=True, text=True, check=True).stdout == "goes on\n"
