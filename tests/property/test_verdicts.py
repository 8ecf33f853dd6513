"""The reconciler's rule against random histories: never a false difference, and a real one is named for what it is.

A simulated source, bridge, topic and cleaner (``tests/support/simulated_topic.py``) take the place of servers: what the
cleaner does between two reads of a scan, or a commit between WAL and visibility, cannot be had on demand from those.
The truth comes from the record of everything that ever was in the topic, not from the rule.

``SEED=7 python -m pytest tests/property/test_verdicts.py`` replays one history.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from cdc.spark.reconcile.verdict import (
    KeyClass,
    TableEvidence,
    fold,
    is_outrun,
    judge,
    kept_since_ms,
    why_unverifiable,
)
from tests.support.simulated_topic import KEYS, Fault, Settings, World, run

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(700)
NO_CLEANING = 10**9

Outcomes = Counter[tuple[KeyClass, KeyClass]]
"""(what is true, what was said) of every key that was judged."""


def outcomes(seed: int, settings: Settings) -> Outcomes:
    """Judge every key of one history, and check each verdict."""
    world = World(random.Random(seed), settings)
    scan = run(world)
    reading_ms = scan.ended_ms - scan.taken_ms
    if why_unverifiable(TableEvidence(True, world.unseen, scan.snapshot, reading_ms, settings.delete_retention_ms)):
        return Counter()
    kept_since = kept_since_ms(scan.ended_ms, settings.lag_ms, 0)
    outrun = is_outrun(scan.pinned_ms, kept_since)
    found: Outcomes = Counter()
    for key in range(KEYS + 1):
        source = scan.source.get(key)
        state = fold(scan.records[key], scan.snapshot, kept_since)
        said = judge(source, state, rereads=settings.toast, outrun=outrun)
        true = world.truth(key, scan)
        if not settings.fault and not settings.toast:
            assert true is KeyClass.IDENTICAL, "the simulated bridge is wrong"
        is_toast = settings.toast and (state.toast_newer or state.oldest_invisible_ms is not None)
        allowed = {true}
        if is_toast or (settings.lag_ms != NO_CLEANING and (outrun or not state.kept)):
            allowed.add(KeyClass.IN_FLIGHT)
        if not settings.fault:
            allowed &= {KeyClass.IDENTICAL, KeyClass.IN_FLIGHT}
        assert said in allowed, f"key {key}: {said}, in truth {true}\n{state}\nsource {source} at {scan.snapshot}"
        found[true, said] += 1
    return found


def settings_for(seed: int, *, lag_ms: int | None = None, fault: Fault | None = None) -> Settings:
    rng = random.Random(seed)
    lag = rng.choice((0, 5, 20, 60, 200)) if lag_ms is None else lag_ms
    return Settings(lag, rng.choice((100, 400, NO_CLEANING)), rng.random() < 0.5, rng.random() < 0.5, fault)


def judged(lag_ms: int | None = None, fault: Fault | None = None) -> Outcomes:
    total: Outcomes = Counter()
    for seed in SEEDS:
        settings = settings_for(seed, lag_ms=lag_ms, fault=fault)
        try:
            total += outcomes(seed, settings)
        except AssertionError as error:
            replay = f"SEED={seed} python -m pytest tests/property/{Path(__file__).name}"
            raise AssertionError(f"{replay}\n{settings}\n{error}") from error
    return total


def test_a_correct_bridge_is_never_accused() -> None:
    total = judged()
    assert not any(said.is_difference for _, said in total)
    if len(SEEDS) > 1:
        assert total[KeyClass.IDENTICAL, KeyClass.IN_FLIGHT], "no history in which a key could not be judged"


def test_with_a_lag_longer_than_the_run_only_toast_is_in_flight() -> None:
    total = judged(lag_ms=NO_CLEANING)
    assert not any(said.is_difference for _, said in total)
    assert total[KeyClass.IDENTICAL, KeyClass.IDENTICAL]


@pytest.mark.parametrize("lag_ms", [None, NO_CLEANING])
@pytest.mark.parametrize("fault", get_args(Fault))
def test_a_fault_is_named_for_what_it_is(fault: Fault, lag_ms: int | None) -> None:
    total = judged(lag_ms, fault)
    wanted = {
        "drop": {KeyClass.MISSING_IN_TOPIC, KeyClass.EXTRA_IN_TOPIC, KeyClass.VALUE_MISMATCH},
        "alter": {KeyClass.VALUE_MISMATCH},
        "stale": {KeyClass.EXTRA_IN_TOPIC, KeyClass.VALUE_MISMATCH},
        "ghost": {KeyClass.EXTRA_IN_TOPIC},
    }[fault]
    if len(SEEDS) > 1:
        for each in wanted:
            assert total[each, each] >= 3, f"hardly any {each}: {total}"
