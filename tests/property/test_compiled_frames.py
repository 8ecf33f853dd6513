"""What the engine makes of frames in C equals what it makes of them in Python: records, order, keys, counts, errors."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from cdc.base.compiled import twin
from cdc.base.lsn import LSN
from cdc.contract.record import Position, Progress, SourceIdentity
from tests.support.engines import Side, batches, shapes
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
SOURCE: Final = SourceIdentity("7", 1, 5)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(twin("cdc.bridge.order._frames") is None, reason="nothing was compiled"),
]


def test_frames_become_the_same_records() -> None:
    rng = random.Random(SEED)
    fed = rows = hidden_fed = 0
    for trial in range(times(300, soak=6_000)):
        tables = shapes(rng)
        ours = {each.number for each in tables if each.is_ours}
        partial = rng.choice((None, None, Position(LSN(1_000), rng.randrange(5))))
        resume = Progress(LSN(rng.choice((100, 1_500))) if partial is None else LSN(100), partial, 0, SOURCE)
        watched, histories = rng.random() < 0.3, frozenset(rng.choice(((), (), ("t2",))))
        enveloped, hidden = rng.choice(((), (1, 2))), rng.choice(((), (1, 2, 3)))
        sides = [
            Side(resume, in_c=in_c, watched=watched, histories=histories, ours=ours, enveloped=enveloped, hidden=hidden)
            for in_c in (True, False)
        ]
        for frames in batches(rng, tables):
            outcomes = [side.feed(list(frames)) for side in sides]
            assert outcomes[0] == outcomes[1], (SEED, trial)
            assert sides[0].standing() == sides[1].standing(), (SEED, trial)
            if outcomes[0]:
                break
        fed += sides[0].fed
        hidden_fed += sides[0].fed if hidden else 0
        rows += len(sides[0].records)
        assert sides[1].fed == 0
    assert fed > rows / 4, "declining everything would be right, too"
    assert hidden_fed > rows / 12, "so would declining tables with rules"
