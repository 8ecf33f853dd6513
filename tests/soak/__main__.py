"""Runs bridge and sink under load and random faults, compares all sides again and again, and prints what it measured.

The seed decides the choices of load and faults; how they meet is up to the machine. Ctrl-C prints the figures so far.
"""

from __future__ import annotations

import argparse
import logging
import random
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.soak.faults import KINDS
from tests.soak.figures import Figures
from tests.soak.place import opened
from tests.soak.profiles import PROFILES
from tests.soak.soak import Plan, Soak, SoakFailed
from tests.support.versions import DEFAULT, SUPPORTED


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def minutes(text: str) -> float:
    """A number of minutes, at least one."""
    number = float(text)
    if not number >= 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def arguments() -> argparse.Namespace:
    """Returns what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=30, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of all choices (default: a random one, which is printed)")
    parser.add_argument("--profile", action="append", choices=PROFILES, help="of the load (default: all, in turns)")
    parser.add_argument("--fault", action="append", choices=KINDS, help="a kind of fault (default: all)")
    parser.add_argument("--no-faults", action="store_true", help="load and checks only: does memory grow?")
    parser.add_argument("--check-every", type=float, default=180, metavar="S", help="seconds (default: %(default)s)")
    parser.add_argument(
        "--major", type=int, choices=SUPPORTED, default=DEFAULT, help="of the source (default: %(default)s)"
    )
    parser.add_argument("--delivery", choices=("transactional", "idempotent"), default="transactional")
    return parser.parse_args()


def main() -> int:
    """Returns the exit code: 1 if anything failed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # sessions that faults end are no news
    chosen = arguments()
    seed = random.SystemRandom().getrandbits(32) if chosen.seed is None else chosen.seed
    given = [] if chosen.seed is not None else ["--seed", str(seed)]
    say(f"replay with: {shlex.join(['python', '-m', 'tests.soak', *sys.argv[1:], *given])}")
    kinds = [] if chosen.no_faults else chosen.fault or list(KINDS)
    plan = Plan(chosen.profile or list(PROFILES), kinds, chosen.minutes * 60, chosen.check_every, seed)
    folder, figures = Path(tempfile.mkdtemp(prefix="cdc-soak-")), Figures()
    is_cut_short = False
    try:
        with opened(folder, chosen.delivery, chosen.major) as place:
            Soak(place, plan, figures, say).run()
    except KeyboardInterrupt:
        is_cut_short = True
    except SoakFailed as failed:
        figures.failures.append(str(failed))
    except Exception:  # noqa: BLE001 - the figures are shown whatever ends the run
        figures.failures.append(traceback.format_exc())
    figures.judge()
    say("\n" + figures.text())
    if is_cut_short:
        say("cut short with Ctrl-C")
    if figures.failures or not figures.checks:
        say(f"logs of bridge and sink: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
