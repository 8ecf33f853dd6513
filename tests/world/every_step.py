"""Lets faults strike at every step of small worlds: ``python -m tests.world.every_step``.

Random worlds meet the likely orders. Here, nothing is left to luck: a world of three transactions runs once without a
fault, and then once more for each of its steps, with the fault at that step. If two faults strike in one world, it runs
for each pair of steps. For each thing that the workload can do, and each configuration, there is a world with a
schedule of its own.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from tests.world.__main__ import configurations, run, say
from tests.world.clients import install

_HASHES: Final = "PYTHONHASHSEED"
_TRANSACTIONS: Final = 3
_SEARCHED: Final = 400
"""In so many schedules, a world for each deed is found."""
_PER_COLLECTION: Final = 50


class Scenario(NamedTuple):
    """A small world.

    Attributes:
        deed: what its workload does, among other things.
        seed: decides the schedule, and which configuration it has.
    """

    deed: str
    seed: int


def scenarios(deeds: frozenset[str], configuration: int, configurations: int) -> list[Scenario]:
    """Returns the first world for each deed that has this configuration."""
    from tests.world.world import Plan

    found: dict[str, Scenario] = {}
    for seed in range(configuration, _SEARCHED * configurations, configurations):
        if not deeds - found.keys():
            break
        failure, reached = run(seed, Plan(_TRANSACTIONS, at=()))
        assert failure is None, failure
        for deed in deeds & reached.keys():
            found.setdefault(deed, Scenario(deed, seed))
    missing = sorted(deeds - found.keys())
    assert not missing, f"no small world has {missing}"
    return [found[deed] for deed in sorted(found)]


class Explorer:
    """Runs the worlds.

    Attributes:
        worlds: how many have run.
        struck: how often each fault struck; at some steps it cannot.
    """

    def __init__(self) -> None:
        self.worlds = 0
        self.struck: Counter[str] = Counter()

    def explore(self, scenario: Scenario, kinds: tuple[str, ...], at: tuple[int, ...] = ()) -> Iterator[str]:
        """Let the faults strike, each at every step after the one before.

        Yields:
            What was broken, and how to see it again.
        """
        from tests.world.world import Plan

        plan = Plan(_TRANSACTIONS, kinds=kinds[: len(at)], at=at)
        failure, reached = run(scenario.seed, plan)
        self.worlds += 1
        if self.worlds % _PER_COLLECTION == 0:
            gc.collect()
        if failure is not None:
            yield f"seed {scenario.seed} ({scenario.deed}), {plan.kinds} at {at}: {failure.error}"
            return
        if len(at) == len(kinds):
            self.struck += Counter({kind: reached[kind] for kind in set(kinds)})
            return
        for step in range(at[-1] + 1 if at else 1, reached["steps"] + 1):
            yield from self.explore(scenario, kinds, (*at, step))


def main() -> int:
    """Returns the exit code: 1 if a promise was broken, or a fault never struck."""
    if _HASHES not in os.environ:
        command = [sys.executable, "-m", "tests.world.every_step", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, _HASHES: "0"})
    install()
    from tests.world.faults import FAULTS
    from tests.world.machine import many_machines
    from tests.world.workload import DDL, DEEDS

    everything = sorted(DEEDS | DDL)
    parser = argparse.ArgumentParser(prog="python -m tests.world.every_step", description=__doc__)
    parser.add_argument(
        "--kinds",
        default="",
        help="kinds of faults, separated by commas (default: each one); + between those that strike in one world",
    )
    parser.add_argument("--deeds", default="", help=f"separated by commas (default: all): {', '.join(everything)}")
    parser.add_argument("--configurations", type=int, help="only so many (default: all)")
    chosen = parser.parse_args()
    kinds = [each for each in chosen.kinds.split(",") if each] or [each for each in FAULTS if "other" not in each]
    combinations = [tuple(each.split("+")) for each in kinds]
    deeds = frozenset(filter(None, chosen.deeds.split(","))) or frozenset(everything)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.collect()
    gc.disable()  # as in tests.world.__main__
    with many_machines():
        return explore_all(combinations, deeds, chosen.configurations)


def explore_all(combinations: list[tuple[str, ...]], deeds: frozenset[str], most: int | None) -> int:
    """Explore every world with each combination of faults, and print what was seen; returns the exit code."""
    count = len(configurations())
    numbers = range(count)[:most]
    small = [each for number in numbers for each in scenarios(deeds, number, count)]
    say(f"{len(small)} small worlds: {len(deeds)} deeds, {len(numbers)} configurations")
    is_whole = True
    for kinds in combinations:
        began, explorer = time.perf_counter(), Explorer()
        for scenario in small:
            for broken in explorer.explore(scenario, kinds):
                is_whole = False
                say(broken)
        took = time.perf_counter() - began
        struck = ", ".join(f"{kind} {explorer.struck[kind]:,} times" for kind in dict.fromkeys(kinds))
        say(f"{explorer.worlds:10,} worlds in {took:.0f} s: {struck}")
        is_whole = is_whole and all(explorer.struck[kind] for kind in kinds)
    return int(not is_whole)


if __name__ == "__main__":
    sys.exit(main())
