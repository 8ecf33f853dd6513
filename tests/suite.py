"""Runs pytest: ``python -m tests.suite tests -n 4``, as ``make test`` does.

What stands after ``--`` is a second run of pytest, beside the first, in one process and without the modules in C. Both
use one Kafka. What the second one prints is shown when both are done.

A test that fails fails the run. The only exception is a flake that somebody has entered in ``tests/flakes.toml``, with
a reason, an owner and a date on which the entry expires: such a test is run once more, alone. A crash, a hang, a lack
of memory and a test that draws at random are final even then. Each run prints the list.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import IO, Final

import pytest

FLAKES: Final = Path("tests/flakes.toml")
_FILE: Final = "tests/failed"
_AT_RANDOM: Final = ("soak", "property")
"""A mark, and a ring."""
_PHASES: Final = ("setup", "call", "teardown")
_SAYS_HANG_OR_MEMORY: Final = ("from pytest-timeout", "MemoryError")
_CACHE: Final = ".pytest_cache"
_PLAIN: Final = {"CDC_PURE_PYTHON": "1"}


class FailureRecord:
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
        if self._config.pluginmanager.has_plugin("cacheprovider"):
            self._config.cache.set(_FILE, self._is_final)


def is_final(report: pytest.TestReport) -> bool:
    """Whether a failure is never forgiven: a crash, a hang, a lack of memory, and what draws at random.

    A process that crashed cannot report its test. xdist does so in its place, without marks and for no phase.
    """
    if report.when not in _PHASES or any(name in report.keywords for name in _AT_RANDOM):
        return True
    return any(words in report.longreprtext for words in _SAYS_HANG_OR_MEMORY)


class SuiteRun:
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

    def once_more(self, code: int, flakes: Collection[str]) -> int:
        """Runs known flakes that failed once more, alone.

        Args:
            code: pytest's exit code.
            flakes: the tests that are entered as flakes.

        Returns:
            The exit code: 0 when all that failed are known flakes and passed alone.
        """
        if code != pytest.ExitCode.TESTS_FAILED:
            return code
        again = heard_again(json.loads(Path(self._cache, "v", _FILE).read_text(encoding="utf-8")), flakes)
        if not again:
            return code
        sys.stdout.write(f"\nKnown flakes, once more and alone: {', '.join(again)}\n")
        sys.stdout.flush()
        return subprocess.call([*self._python, *again], env={**os.environ, **self._environment})


def heard_again(failed: Mapping[str, bool], flakes: Collection[str]) -> list[str]:
    """Returns the tests to run once more; none where that could not save the run.

    Args:
        failed: whether the failure is final, by test.
        flakes: the tests that are entered as flakes.
    """
    return sorted(failed) if all(test in flakes and not final for test, final in failed.items()) else []


@dataclass(frozen=True, slots=True)
class Flake:
    """A test that fails now and then, for a reason that is known and not mended yet.

    Attributes:
        test: as pytest names it.
        owner: the module that has the defect.
        until: from the day after, a failure of the test fails the run.
    """

    test: str
    reason: str
    owner: str
    until: date


def known_flakes(path: Path = FLAKES) -> list[Flake]:
    """Reads the list; no file is an empty list."""
    if not path.exists():
        return []
    return [Flake(**each) for each in tomllib.loads(path.read_text(encoding="utf-8")).get("flake", ())]


def show_flakes(flakes: Sequence[Flake], today: date) -> None:
    """Prints the list, so that nobody forgets what is forgiven."""
    sys.stdout.write(f"Known flakes: {len(flakes) or 'none'}\n")
    for each in flakes:
        standing = "expired" if each.until < today else f"until {each.until}"
        sys.stdout.write(f"  {each.test} ({standing}; {each.owner}): {each.reason}\n")


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
    """Returns the greater of the two exit codes; 0 when all passed, known flakes at their second run at the latest."""
    flakes = known_flakes()
    at = arguments.index("--") if "--" in arguments else len(arguments)
    whole, plain = arguments[:at], arguments[at + 1 :]
    compiling = compile_once(whole)
    with ExitStack() as until_both_end:
        if plain:
            from tests.support import shared_broker

            until_both_end.enter_context(shared_broker.for_all())
        if compiling is not None:
            compiling.wait()
        runs = [SuiteRun(whole, {})]
        if plain:
            output = until_both_end.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            runs.append(SuiteRun(plain, _PLAIN, output))
        codes = [each.show() for each in runs]
    today = datetime.now(UTC).date()
    show_flakes(flakes, today)
    sys.stdout.flush()
    unexpired = {each.test for each in flakes if each.until >= today}
    return max(each.once_more(code, unexpired) for each, code in zip(runs, codes, strict=True))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
