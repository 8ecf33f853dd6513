"""Runs state machines of hypothesis as other random tests run: with a seed that is told, and nothing left in the tree.

An ordinary run draws the same examples each time, so that what passed once passes again. ``make soak`` draws others,
and ``SEED=42`` replays one run. A failure shows the shortest sequence of steps that was found to fail.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import Phase, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

# Its cache of Unicode's tables would lie in the tree.
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "cdc-tests-hypothesis")


class Machine(RuleBasedStateMachine):
    """A machine with a last check, which is left out when a step has failed: what failed first is to be told."""

    def finish(self) -> None:
        """The last check, of all that the steps have left."""

    def close(self) -> None:
        """Gives back what the machine holds, whatever has happened."""

    def teardown(self) -> None:
        """What hypothesis calls at the end of each example."""
        try:
            if sys.exc_info()[0] is None:
                self.finish()
        finally:
            self.close()


def run_machine(machine: Callable[[], RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    """Lets machines take random steps, and shrinks what fails.

    Args:
        machine: makes one, for each example.
        examples: how many.
        steps: of each example at most.
    """
    number = int(os.environ.get("SEED", random.getrandbits(32) if "SOAK" in os.environ else 0))
    sys.stdout.write(f"replay with: SEED={number}\n")

    def seeded() -> RuleBasedStateMachine:
        return machine()

    run_state_machine_as_test(
        seed(number)(seeded),  # type: ignore[arg-type]  # a function that makes one will do, says its docstring
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,  # servers take as long as they take
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),  # to explain a failure would take as many runs as to find it
        ),
    )
