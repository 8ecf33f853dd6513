"""Mutates the code that decides about rows, and prints for each room how many mutants no test notices.

``python -m tests.mutation`` takes all rooms (hours), ``python -m tests.mutation order cut`` two of them. mutmut changes
an expression at a time and runs the unit tests that reach the function. Whatever these do not notice then meets worlds.
All runs in Python alone, in a copy under ``build/mutation``, where ``--again`` finds the results of the last run.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation.rooms import ROOMS, Room

_ROOT: Final = Path(__file__).resolve().parents[2]
_BUILD: Final = _ROOT / "build" / "mutation"
_SURVIVED: Final = 0
_NO_TESTS: Final = (5, 33)
_NEVER_RUN: Final = (None, 2, 34)
"""Exit codes by which mutmut remembers how the tests of a mutant ended; any other code means that one of them failed,
or did not end in time."""
_WORLD_LIMIT_S: Final = 600
"""Worlds take seconds; what has not ended by then hangs, and a test run would end it."""

_TELL: Final = """
import sys
from mutmut.mutation.diff_apply import get_diff_for_mutant

for place in sys.argv[1:]:
    path, _, name = place.partition("=")
    changed = [line for line in get_diff_for_mutant(name, path=path).splitlines()[2:] if line[0] in "+-"]
    print(name, *changed, sep="\\n")
"""


class Mutants(NamedTuple):
    """The names of a room's mutants, by what noticed them."""

    by_tests: list[str]
    by_worlds: list[str]
    by_nothing: list[str]


def say(line: str) -> None:
    """Print a line at once, because the next room takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Print a line for each room and a list of survivors; returns 1 if fewer than ``--least`` percent were noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("rooms", nargs="*", help=f"all unless given: {', '.join(ROOMS)}")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="mutants that are tried at once")
    parser.add_argument("--worlds", type=int, default=100, help="how many a mutant meets that no unit test noticed")
    parser.add_argument("--least", type=float, default=90.0, help="percent of mutants to be noticed in each room")
    parser.add_argument("--again", action="store_true", help="keep the results of the last run, and list the survivors")
    chosen = parser.parse_args(arguments)
    names = chosen.rooms or list(ROOMS)
    if unknown := set(names) - ROOMS.keys():
        parser.error(f"no such room: {', '.join(sorted(unknown))}; there are {', '.join(ROOMS)}")
    say(f"{'room':<10} {'mutants':>8} {'by tests':>9} {'by worlds':>10} {'survived':>9} {'noticed':>8}")
    survived: list[str] = []
    is_enough = True
    for name in names:
        room, copy = ROOMS[name], _BUILD / name
        if not chosen.again:
            _mutate(room, copy, chosen.processes)
        found = _judge(room, copy, chosen)
        mutants = sum(map(len, found))
        noticed = 100 * (1 - len(found.by_nothing) / mutants)
        is_enough &= noticed >= chosen.least
        counts = f"{len(found.by_tests):>9,} {len(found.by_worlds):>10,} {len(found.by_nothing):>9,}"
        say(f"{name:<10} {mutants:>8,} {counts} {noticed:>7.1f}%")
        survived.append(_told(copy, found.by_nothing))
    say("\n".join(["", "Survivors:", *survived]))
    return int(not is_enough)


def _mutate(room: Room, copy: Path, processes: int) -> None:
    """Make a copy of the project and let mutmut run the room's tests there."""
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for each in filter(None, listed.split("\0")):
        (copy / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_ROOT / each, copy / each, follow_symlinks=False)
    # mutmut does not follow links, and names a module by its path
    (copy / "cdc" / "spark").unlink()
    (copy / "spark").rename(copy / "cdc" / "spark")
    (copy / "spark").symlink_to("cdc/spark")
    settings = {
        "source_paths": ["cdc"],
        # files, because an asterisk of mutmut's patterns takes folders below as well
        "only_mutate": [str(each.relative_to(copy)) for pattern in room.code for each in sorted(copy.glob(pattern))],
        "also_copy": ["config", "docs", "migrations", "README.md", "CONTRIBUTING.md", "Makefile"],
        # times the time that the tests need without a mutant; mutmut's 15 is minutes for each mutant that never ends
        "timeout_multiplier": 5.0,
        "pytest_add_cli_args_test_selection": list(room.tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "no:xdist"],
    }
    with (copy / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes)]
    environment = {**os.environ, "CDC_PURE_PYTHON": "1"}
    with (copy / "mutmut.log").open("w") as log:
        done = subprocess.run(command, cwd=copy, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SystemExit(f"mutmut ended with {done.returncode}; {copy / 'mutmut.log'} says why")


def _judge(room: Room, copy: Path, chosen: argparse.Namespace) -> Mutants:
    """Returns what noticed each mutant; what the unit tests did not notice runs in worlds once, which is remembered."""
    codes = {
        name: code
        for _, name, code in _exit_codes(copy)
        if not any(fnmatch.fnmatch(name, pattern) for pattern in room.left_out)
    }
    if never := [name for name, code in codes.items() if code in _NEVER_RUN]:
        raise SystemExit(f"{len(never):,} mutants were not tried, {never[0]} among them; run without --again")
    left = [name for name, code in codes.items() if code == _SURVIVED or code in _NO_TESTS]
    record = copy / "worlds.json"
    if room.in_worlds and not (chosen.again and record.exists()):
        assert _is_kept("", copy, chosen.worlds), f"worlds fail without a mutant; see {copy}"
        with ThreadPoolExecutor(chosen.processes) as pool:
            kept = list(pool.map(partial(_is_kept, copy=copy, worlds=chosen.worlds), left))
        record.write_text(json.dumps([name for name, is_kept in zip(left, kept, strict=True) if not is_kept]))
    by_worlds = json.loads(record.read_text()) if room.in_worlds else []
    return Mutants(
        [name for name in codes if name not in set(left)],
        by_worlds,
        [name for name in left if name not in set(by_worlds)],
    )


def _exit_codes(copy: Path) -> Iterator[tuple[str, str, int | None]]:
    """Returns the file, the name and the exit code of each mutant."""
    for path in sorted((copy / "mutants").rglob("*.meta")):
        file = str(path.relative_to(copy / "mutants").with_suffix(""))
        for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
            yield file, name, code


def _is_kept(mutant: str, copy: Path, worlds: int) -> bool:
    """Whether worlds with this mutant keep every promise; mutmut chooses a mutant by an environment variable."""
    command = [sys.executable, "-m", "tests.world", "--first", "0", "--worlds", str(worlds), "--no-shrink"]
    environment = {**os.environ, "MUTANT_UNDER_TEST": mutant, "CDC_PURE_PYTHON": "1", "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            command, cwd=copy / "mutants", env=environment, capture_output=True, check=False, timeout=_WORLD_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _told(copy: Path, mutants: Collection[str]) -> str:
    """Returns what each mutant changes."""
    places = [f"{file}={name}" for file, name, _ in _exit_codes(copy) if name in set(mutants)]
    done = subprocess.run([sys.executable, "-c", _TELL, *places], cwd=copy, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
