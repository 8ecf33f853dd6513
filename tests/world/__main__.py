"""Runs worlds: ``python -m tests.world``; ``--seed n`` replays one."""

from __future__ import annotations

import argparse
import time
from collections import Counter

import structlog

from tests.world.clients import install


def main() -> None:
    """Run worlds until the time is over, and print what was reached and how fast."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one world")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    install()
    from tests.world.machine import many_machines
    from tests.world.programs import configuration
    from tests.world.world import Plan, World

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    configs = [configuration(), configuration(delivery="idempotent"), configuration(source={"streaming": True})][:2]
    reached: Counter[str] = Counter()
    began, worlds, steps, seed = time.perf_counter(), 0, 0, chosen.first
    with many_machines():
        while True:
            if chosen.seed is not None:
                seed = chosen.seed
            world = World(seed, configs[seed % len(configs)], Plan())
            if chosen.seed is not None:
                world.tell()
            try:
                world.run()
            except BaseException:
                print(f"seed {seed}")
                raise
            reached += world.reached
            reached.update(world.workload.done)
            worlds, steps, seed = worlds + 1, steps + world.steps, seed + 1
            took = time.perf_counter() - began
            if chosen.seed is not None or took > chosen.seconds:
                break
    print(f"{worlds} worlds, {steps} steps in {took:.1f} s: {worlds / took:.1f} worlds/s")
    for what, count in sorted(reached.items()):
        print(f"{count:8} {what}")


main()
