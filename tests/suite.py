"""Runs pytest, and what failed once more, alone: ``python -m tests.suite tests -n 4``, as ``make test`` does.

What stands behind ``--`` is a second run of pytest, beside the first, in one process and without the modules in C. Both
use one Kafka. What the second one prints is shown when both are done.

Beside so many other processes on two cores a test may miss a moment, or a server its time. So up to three tests that
failed have a second hearing, with servers of their own and nothing beside them. What passes then is named in the last
line, for it is a defect all the same. What draws its kills, loads or rows at random has none: it would meet others.
Nor has a process that crashed, a test that hung, or one that found no memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import pytest

MOST: Final = 3
"""Tests with a second hearing; if more of them fail, it was no accident."""
_FILE: Final = "tests/failed"
_AT_RANDOM: Final = ("soak", "property")
"""A mark, and a ring."""
_PHASES: Final = ("setup", "call", "teardown")
_SAYS_HANG_OR_MEMORY: Final = ("from pytest-timeout", "MemoryError")
_CACHE: Final = ".pytest_cache"
_PLAIN: Final = {"CDC_PURE_PYTHON": "1"}


class FirstHearing:
    """Keeps in pytest's cache what failed; in the process that hands out the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_final: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for setup, call and teardown of each test."""
        if report.failed:
            self._is_final[report.nodeid] = is_final(report)

    def pytest_sessionfinish(self) -> None:
        """Written by every run, so that no run is judged by an older one."""
        if self._config.cache is not None:
            self._config.cache.set(_FILE, self._is_final)


def is_final(report: pytest.TestReport) -> bool:
    """Whether a failure has no second hearing: a crash, a hang, a lack of memory, and what draws at random.

    A process that crashed cannot report its test. xdist does so in its place, without marks and for no phase.
    """
    if report.when not in _PHASES or any(name in report.keywords for name in _AT_RANDOM):
        return True
    return any(words in report.longreprtext for words in _SAYS_HANG_OR_MEMORY)


class Hearing:
    """One run of pytest.

    Args:
        arguments: pytest's.
        environment: variables beside ours.
        output: where it prints; None for where we do.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], output: IO[str] | None = None) -> None:
        self._cache = f"{_CACHE}/plain" if environment else _CACHE
        self._python = [sys.executable, "-m", "pytest", "-o", f"cache_dir={self._cache}"]
        self._environment = environment
        self._output = output
        self._process = subprocess.Popen([*self._python, *arguments], env={**os.environ, **environment}, stdout=output)

    def show(self) -> int:
        """Wait for its end, and print what is not printed yet; pytest's exit code."""
        try:
            code = self._process.wait()
        except KeyboardInterrupt:  # which pytest was told of, too
            code = self._process.wait()
        if self._output is not None:
            self._output.seek(0)
            shutil.copyfileobj(self._output, sys.stdout)
        return code

    def once_more(self, code: int) -> int:
        """Exit code of pytest, and 0 when all that failed passed alone.

        Args:
            code: of the first hearing.
        """
        if code != pytest.ExitCode.TESTS_FAILED:
            return code
        again = verdict(json.loads(Path(self._cache, "v", _FILE).read_text(encoding="utf-8")))
        if not again:
            return code
        sys.stdout.write(f"\nOnce more, alone: {', '.join(again)}\n")
        sys.stdout.flush()
        code = subprocess.call([*self._python, *again], env={**os.environ, **self._environment})
        if code == pytest.ExitCode.OK:
            sys.stdout.write(
                f"Passed alone only, which is a defect of the test or of the product: {', '.join(again)}\n"
            )
        return code


def verdict(failed: dict[str, bool]) -> list[str]:
    """The tests to hear again; none when one of them is final, or when there are too many.

    Args:
        failed: whether it is final, by test.
    """
    return [] if any(failed.values()) or len(failed) > MOST else sorted(failed)


def compile_once(arguments: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """In a fresh clone, a process that imports all tests; else each of the many would compile all that it imports.

    Args:
        arguments: pytest's, of the whole suite.
    """
    if Path(_CACHE).exists():
        return None
    collect = [sys.executable, "-m", "pytest", *arguments, "-n0", "--collect-only", "-q"]
    return subprocess.Popen(collect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(arguments: Sequence[str]) -> int:
    """The greater of the two exit codes; 0 when all that failed passed alone."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    whole, plain = arguments[:at], arguments[at + 1 :]
    compiling = compile_once(whole)
    with ExitStack() as until_both_end:
        if plain:
            from tests.support import shared_broker

            until_both_end.enter_context(shared_broker.for_all())
        if compiling is not None:
            compiling.wait()
        hearings = [Hearing(whole, {})]
        if plain:
            output = until_both_end.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            hearings.append(Hearing(plain, _PLAIN, output))
        codes = [each.show() for each in hearings]
    sys.stdout.flush()
    return max(each.once_more(code) for each, code in zip(hearings, codes, strict=True))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
