"""Fuzzes the targets one after another, guided by the coverage of the product's Python code.

``python -m tests.fuzz --seconds 60`` fuzzes each target for a minute, ``python -m tests.fuzz keys --seconds 600`` only
one. What was learned stays in ``build/fuzz``. ``--keep`` also writes inputs that reach new code, or that failed, to
``tests/golden/fuzz``, which ``make check`` runs through without a fuzzer. ``python -m tests.fuzz keys --input FILE``
runs a target once, with the bytes of a file.

A target runs in a process of its own, because libFuzzer ends its process. Under ``make fuzz`` the modules in C are
built with the address sanitizer.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.golden.files import fuzzed, keep_fuzzed

_BUILD: Final = Path("build/fuzz")
_LONGEST: Final = 8192
"""Bytes of an input: enough for a dozen messages or records, and a run of all takes milliseconds at most."""
_STATUS: Final = re.compile(r"#(\d+)\s+(?:DONE|INITED|pulse|NEW|REDUCE|RELOAD).*?cov: (\d+)")


def say(line: str) -> None:
    """Print a line at once, because the next target takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Outcome(NamedTuple):
    """How the fuzzing of a target ended: executions, places of the code that were reached, and what was found."""

    executions: int
    coverage: int
    found: str


def main(arguments: Sequence[str]) -> int:
    """Fuzz, and print a line for each target."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", help="names of targets; all unless given")
    parser.add_argument("--seconds", type=int, default=60, help="how long each target is fuzzed")
    parser.add_argument("--keep", action="store_true", help="write inputs that reach new code to tests/golden/fuzz")
    parser.add_argument("--input", type=Path, help="run one target with the bytes of this file, without a fuzzer")
    parser.add_argument("--libfuzzer", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.libfuzzer is not None:
        _fuzz(chosen.targets[0], chosen.libfuzzer)
    from tests.fuzz.targets import TARGETS

    names = chosen.targets or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if chosen.input is not None:
        TARGETS[names[0]].run(chosen.input.read_bytes())
        return 0
    say(f"{'target':<12} {'executions':>12} {'coverage':>9}  found")
    failed = False
    for name in names:
        folder = _BUILD / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate((*TARGETS[name].seeds(), *fuzzed(name))):
            (folder / f"seed-{number:04}").write_bytes(data)
        outcome = _outcome(name, folder, chosen.seconds)
        say(f"{name:<12} {outcome.executions:>12,} {outcome.coverage:>9,}  {outcome.found or 'nothing'}")
        failed |= bool(outcome.found)
        if chosen.keep:
            keep_fuzzed(name, _worth_keeping(name, folder))
    return int(failed)


def _fuzz(name: str, options: Sequence[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["cdc"]):
        from tests.fuzz.targets import TARGETS
    # libFuzzer calls itself when it merges folders, by this text and a shell
    command = f"{shlex.quote(sys.executable)} -m tests.fuzz {name} --libfuzzer"
    atheris.Setup([command, *options], TARGETS[name].run)
    atheris.Fuzz()


def _outcome(name: str, folder: Path, seconds: int) -> Outcome:
    done = _libfuzzer(name, str(folder), f"-max_total_time={seconds}", f"-artifact_prefix={_BUILD}/{name}-")
    progress = _STATUS.findall(done)
    executions, coverage = progress[-1] if progress else ("0", "0")
    found = re.search(r"Test unit written to (\S+)", done)
    if found is not None:
        (_BUILD / f"{name}.log").write_text(done)
    problem = "" if found is None else f"{found[1]}, told in {_BUILD}/{name}.log"
    return Outcome(int(executions), int(coverage), problem or ("" if progress else done[-2000:]))


def _worth_keeping(name: str, folder: Path) -> list[bytes]:
    """What was kept before, what failed, and what reaches further code; the shortest inputs first."""
    failed = [each.read_bytes() for each in _BUILD.glob(f"{name}-*") if each.is_file()]
    with tempfile.TemporaryDirectory() as merged:
        for number, data in enumerate((*fuzzed(name), *failed)):
            Path(merged, f"kept-{number:04}").write_bytes(data)
        # libFuzzer adds to the first folder what reaches code that none of its inputs reaches
        _libfuzzer(name, "-merge=1", merged, str(folder))
        return sorted({each.read_bytes() for each in Path(merged).iterdir()}, key=lambda data: (len(data), data))


def _libfuzzer(name: str, *options: str) -> str:
    command = [sys.executable, "-m", "tests.fuzz", name, "--libfuzzer", *options, f"-max_len={_LONGEST}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
