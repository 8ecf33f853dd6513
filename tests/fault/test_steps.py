"""Every step × every disturbance: a process is stopped between two steps, the world is disturbed, the process goes on.

A life is one deployment that goes through several such trials. After each, source, topic and replica hold the same
rows, and on the way no table was called whole that was not. ``make test`` runs a short life of each delivery, always
the same ones; ``make soak`` runs 25 lives of 20 trials each, from ``SEED`` on. What a trial was is in its output.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence

import pytest

from tests.support.deployment import Deploy
from tests.support.forked import wait_stopped_or_ended
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.steps.disturbances import DISTURBANCES
from tests.support.steps.scenarios import SCENARIOS, Scenario
from tests.support.steps.trial import Trial
from tests.support.steps.world import World

_SEED = int(os.environ.get("SEED", "1"))
_LIVES = int(os.environ.get("LIVES", times(1, soak=25)))
_TRIALS = int(os.environ.get("TRIALS", times(4, soak=20)))
_REACH_S = 8.0
_DELIVERIES = (("transactional",), ("idempotent",), ("idempotent", "transactional"))
"""Of several, the bridge delivers in one from a trial's beginning on; what runs meanwhile goes on as it began."""
_CASES = [pytest.param(each, marks=[] if each == _DELIVERIES[-1] else pytest.mark.long) for each in _DELIVERIES]


def choose(rng: random.Random, *, is_first: bool) -> tuple[str, str, int, str]:
    """Scenario, step, at which visit, and disturbance. Only a life's first trial can be about its very beginning."""
    scenario = rng.choice([name for name in SCENARIOS if is_first or name != "initial"])
    step, visits = rng.choice(list(SCENARIOS[scenario].steps.items()))
    fitting = [name for name, each in DISTURBANCES.items() if SCENARIOS[scenario].armed in each.only]
    return scenario, step, rng.randint(1, visits), rng.choice(fitting)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(_SEED, _SEED + _LIVES))
@pytest.mark.parametrize("deliveries", _CASES, ids=" and ".join)
@pytest.mark.timeout(120 * _TRIALS)
def test_all_sides_agree_after_each_trial(
    seed: int, deliveries: Sequence[str], database: Database, deploy: Deploy
) -> None:
    rng, other = random.Random(seed), random.Random(seed)
    world = World(database)
    life = Trial(deploy(source={"on_gap": "rebackfill"}), rng)
    for number in range(_TRIALS):
        scenario, step, visit, disturbance = choose(rng, is_first=number == 0)
        life.deployment.deliver(other.choice(deliveries))
        sys.stdout.write(f"life {seed}, trial {number + 1}: {scenario}, {step}, visit {visit}, {disturbance}: ")
        try:
            reached = undergo(life, SCENARIOS[scenario], f"{step}:{visit}:stop", disturbance)
        except AssertionError as error:
            raise AssertionError(
                f"in trial {number + 1}: {scenario}, {step}:{visit}, {disturbance}\n"
                f"replay: SEED={seed} LIVES=1 TRIALS={number + 1} .venv/bin/python -m pytest {__file__}\n{error}"
            ) from error
        sys.stdout.write("there\n" if reached else "not reached in time\n")
        if world.renew():
            life.settle((), is_noticed_late=True)


def undergo(life: Trial, scenario: Scenario, point: str, disturbance_name: str) -> bool:
    """One trial; whether the process came to its step in time."""
    disturbance = DISTURBANCES[disturbance_name]
    life.begin(scenario.armed)
    scenario.prepare(life)
    life.armed.start(crashpoint=point)
    scenario.lead(life)
    reached = wait_stopped_or_ended(life.armed, _REACH_S)
    disturbance.act(life)
    life.go_on()
    life.writer.write(5)
    life.settle(disturbance.mend, is_noticed_late=scenario.is_noticed_late or disturbance.is_noticed_late)
    return reached
