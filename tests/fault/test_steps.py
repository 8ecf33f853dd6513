"""Every step × every disturbance: a process is stopped between two steps, the world is disturbed, the process goes on.

In the end source, topic and replica hold the same rows, and on the way no table was called whole that was not.
An ordinary run takes a sample that changes with the day; ``make soak`` takes many (``STEPS=n``). Both say their seed,
and a trial is replayed by its name: ``pytest "tests/fault/test_steps.py::test_all_sides_agree[NAME]"``.
"""

from __future__ import annotations

import datetime
import os
import random
import sys

import pytest

from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.steps import world
from tests.support.steps.disturbances import DISTURBANCES
from tests.support.steps.scenarios import SCENARIOS
from tests.support.steps.trial import Trial
from tests.support.forked import wait_stopped_or_ended

_SAMPLE = 8
_REACH_S = 8.0


def trials(count: int, seed: int) -> list[str]:
    """``scenario-step-visit-disturbance-seed`` of so many trials; the same for the same seed."""
    rng = random.Random(seed)
    every = [
        f"{scenario}-{step}-{visit}-{disturbance}"
        for scenario, each in SCENARIOS.items()
        for step, visits in each.steps.items()
        for visit in range(1, visits + 1)
        for disturbance, what in DISTURBANCES.items()
        if each.armed in what.only
    ]
    return [f"{name}-{rng.randrange(10**6)}" for name in rng.sample(every, min(count, len(every)))]


_SEED = int(os.environ.get("SEED", datetime.date.today().toordinal()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "trial" in metafunc.fixturenames:
        named = os.environ.get("TRIAL")
        metafunc.parametrize("trial", [named] if named else trials(int(os.environ.get("STEPS", _SAMPLE)), _SEED))


def test_all_sides_agree(trial: str, database: Database, deploy: Deploy) -> None:
    scenario_name, step, visit, disturbance_name, seed = trial.split("-")
    scenario, disturbance = SCENARIOS[scenario_name], DISTURBANCES[disturbance_name]
    world.create(database)
    one = Trial(deploy(source={"on_gap": "rebackfill"}), random.Random(int(seed)))
    scenario.prepare(one)
    one.armed = one.sink if scenario.armed == "sink" else one.bridge
    one.armed.start(crashpoint=f"{step}:{visit}:stop")
    scenario.lead(one)
    reached = wait_stopped_or_ended(one.armed, _REACH_S)
    sys.stdout.write(f"{trial}: {'stopped at its step' if reached else 'did not come to its step in time'}\n")
    disturbance.act(one)
    one.go_on()
    one.writer.write(5)
    one.settle(disturbance.mend, is_noticed_late=scenario.is_noticed_late or disturbance.is_noticed_late)
