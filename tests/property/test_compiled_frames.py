"""What the engine makes of frames in C equals what it makes of them in Python: records, order, keys, counts, errors."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from cdc.base.compiled import twin
from cdc.base.lsn import LSN
from cdc.contract.change import UNCHANGED_TOAST, Column
from cdc.contract.quarantine import RefusedRow
from cdc.contract.record import Position, Progress, SourceIdentity
from tests.support.engines import Shape, Side, batches, shapes
from tests.support.pgoutput import begin, commit, frame, row_bytes
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
SOURCE: Final = SourceIdentity("7", 1, 5)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(twin("cdc.bridge.order._frames") is None, reason="nothing was compiled"),
]


def test_frames_become_the_same_records() -> None:
    rng = random.Random(SEED)
    fed = rows = hidden_fed = aside = 0
    for trial in range(times(300, soak=6_000)):
        tables = shapes(rng)
        ours = {each.number for each in tables if each.is_ours}
        partial = rng.choice((None, None, Position(LSN(1_000), rng.randrange(5))))
        resume = Progress(LSN(rng.choice((100, 1_500))) if partial is None else LSN(100), partial, 0, SOURCE)
        watched, histories = rng.random() < 0.3, frozenset(rng.choice(((), (), ("t2",))))
        enveloped, hidden = rng.choice(((), (1, 2))), rng.choice(((), (1, 2, 3)))
        limited = rng.choice(((), (1, 2)))
        sides = [
            Side(
                resume,
                in_c=in_c,
                watched=watched,
                histories=histories,
                ours=ours,
                enveloped=enveloped,
                hidden=hidden,
                limited=limited,
            )
            for in_c in (True, False)
        ]
        for frames in batches(rng, tables):
            outcomes = [side.feed(list(frames)) for side in sides]
            assert outcomes[0] == outcomes[1], (SEED, trial)
            assert sides[0].standing() == sides[1].standing(), (SEED, trial)
            if outcomes[0]:
                break
        fed += sides[0].fed
        aside += sum(isinstance(value, RefusedRow) for _, _, value, *_ in sides[1].records)
        hidden_fed += sides[0].fed if hidden else 0
        rows += len(sides[0].records)
        assert sides[1].fed == 0
    assert fed > rows / 4, "declining everything would be right, too"
    assert rows / 2 > aside > 0
    assert hidden_fed > rows / 12, "so would declining tables with rules"


@pytest.mark.parametrize(("old", "in_c"), [((b"1", b"2", b"before"), 2), ((b"1", b"2", None), 0)])
def test_unchanged_toast_is_taken_in_c_if_the_old_row_has_it(old: tuple[bytes | None, ...], in_c: int) -> None:
    columns = [Column(name, 25, -1, "text", True) for name in ("a", "b", "note")]  # a and b are the key
    table = Shape(1, tuple(columns), True, "f")
    resume = Progress(LSN(100), None, 0, SOURCE)
    insert = frame(b"I\0\0\0\x01N" + row_bytes((b"7", b"7", b"new")))
    update = frame(b"U\0\0\0\x01O" + row_bytes(old) + b"N" + row_bytes((b"1", b"2", UNCHANGED_TOAST)))
    # The first row of a table asks for its definition, so Python takes it
    frames = [frame(begin(1_000, 700)), table.relation(), insert, update, update, frame(commit(1_000))]
    sides = [
        Side(resume, in_c=compiled, watched=False, histories=frozenset(), ours={1}, enveloped=())
        for compiled in (True, False)
    ]
    assert [side.feed(list(frames)) for side in sides] == ["", ""]
    assert sides[0].fed == in_c
    assert sides[0].standing() == sides[1].standing()
    assert [value for _, _, value, *_ in sides[0].records[1:]] == [b'{"a":"1","b":"2","note":"before"}'] * in_c
