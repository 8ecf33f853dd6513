"""Runs worlds, each from its own seed, and stops at the first broken promise.

The same seed is the same world, as long as the code is the same. Strings hash by PYTHONHASHSEED, so a process that has
none starts itself again with one.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tests.world.clients import install

if TYPE_CHECKING:
    from cdc.base.config import Config
    from tests.world.world import Plan

_HASHES: Final = "PYTHONHASHSEED"
_ENOUGH: Final = 2_000
"""After so many worlds, everything that may happen has happened; what has not cannot."""
_PER_COLLECTION: Final = 50
_TRIES: Final = 300
_SHRINKS_FOR_S: Final = 60.0


class Failure(NamedTuple):
    """A world in which a promise was broken.

    Attributes:
        steps: how long it took.
    """

    seed: int
    plan: Plan
    steps: int
    error: BaseException


def say(line: str) -> None:
    """Print a line at once: the next world may take long, or hang."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    """Returns what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this world, and tell its story")
    parser.add_argument("--seconds", type=float, default=10, help="how long to run worlds (default: %(default)s)")
    parser.add_argument("--worlds", type=int, help="how many worlds to run, instead of for how long")
    parser.add_argument("--first", type=int, help="the first seed (default: a random one, which is printed)")
    parser.add_argument("--transactions", type=int, default=20, help="at most so many in a world")
    parser.add_argument("--faults", type=int, default=8, help="at most so many in a world")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a shorter world that fails")
    parser.add_argument("--kinds", default="", help="kinds of faults, separated by commas (default: any)")
    return parser.parse_args()


def main() -> int:
    """Returns the exit code: 1 if a promise was broken, or something that must happen sometimes never did."""
    if _HASHES not in os.environ:
        os.execve(sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], {**os.environ, _HASHES: "0"})
    chosen = arguments()
    install()
    from tests.world.machine import many_machines
    from tests.world.world import Plan

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.collect()
    gc.disable()  # a client ends when it is freed, and that must not depend on what ran before
    plan = Plan(chosen.transactions, chosen.faults, tuple(filter(None, chosen.kinds.split(","))))
    with many_machines():
        if chosen.seed is not None:
            failure, _ = run(chosen.seed, plan, is_told=True)
            say("every promise was kept" if failure is None else f"{failure.error}")
            return int(failure is not None)
        return run_many(random.SystemRandom().getrandbits(32) if chosen.first is None else chosen.first, plan, chosen)


def run_many(first: int, plan: Plan, chosen: argparse.Namespace) -> int:
    """Run worlds until the time is over; returns the exit code."""
    say(f"first seed: {first}")
    reached: Counter[str] = Counter()
    began, worlds, took = time.perf_counter(), 0, 0.0
    while (took := time.perf_counter() - began) < chosen.seconds if chosen.worlds is None else worlds < chosen.worlds:
        failure, seen = run(first + worlds, plan)
        if failure is not None:
            tell(failure, shrinks=not chosen.no_shrink)
            return 1
        reached += seen
        worlds += 1
        if worlds % _PER_COLLECTION == 0:
            gc.collect()
    took = time.perf_counter() - began
    say(f"{worlds} worlds in {took:.1f} s, {worlds / took:.1f} a second; {reached['steps'] / took:,.0f} steps a second")
    for what, count in sorted(reached.items()):
        say(f"{count:10,} {what}")
    from tests.world.world import SOMETIMES

    never = sorted(SOMETIMES - reached.keys())
    if worlds >= _ENOUGH and never:
        say(f"never reached: {', '.join(never)}")
        return 1
    return 0


def run(seed: int, plan: Plan, *, is_told: bool = False) -> tuple[Failure | None, Counter[str]]:
    """Run one world; returns how it failed, if it did, and what it reached."""
    from tests.world.world import World

    world = World(seed, configurations()[seed % len(configurations())], plan)
    if is_told:
        world.tell()
    try:
        world.run()
    except Exception as error:  # noqa: BLE001 - whatever ends a program is a broken promise
        return Failure(seed, plan, world.steps, error), world.reached
    return None, world.reached


def configurations() -> list[Config]:
    """Returns what bridges are configured with, one world after the other."""
    from tests.world.programs import CONFIGURATIONS

    return CONFIGURATIONS


def tell(failure: Failure, *, shrinks: bool) -> None:
    """Say what was broken, look for the shortest world that breaks it, and say how to replay both."""
    say(f"seed {failure.seed}, step {failure.steps}: {type(failure.error).__name__}: {failure.error}")
    say(replay(failure))
    shortest = shrunk(failure) if shrinks else failure
    if shortest is not failure:
        say(f"shorter, {shortest.steps} steps: {type(shortest.error).__name__}: {shortest.error}")
        say(replay(shortest))


def replay(failure: Failure) -> str:
    """Returns the command that shows a world again."""
    plan = failure.plan
    kinds = f' --kinds "{",".join(plan.kinds)}"' if plan.kinds else ""
    return (
        f"python -m tests.world --seed {failure.seed} --transactions {plan.transactions} --faults {plan.faults}{kinds}"
    )


def shrunk(failure: Failure) -> Failure:
    """Returns the shortest failing world that is found within a minute, with fewer transactions and faults."""
    until = time.perf_counter() + _SHRINKS_FOR_S
    for size in range(1, failure.plan.transactions):
        for faults in range(1, min(size, failure.plan.faults) + 1):
            plan = failure.plan._replace(transactions=size, faults=faults)
            found = [each for seed in range(_TRIES) if (each := run(seed, plan)[0]) is not None]
            if found:
                return min(found, key=lambda each: each.steps)
            if time.perf_counter() > until:
                return failure
    return failure


if __name__ == "__main__":
    sys.exit(main())
