"""The newest LSN of records, and whether they go back, is the same in C and in Python: also of damaged headers."""

from __future__ import annotations

import os
import random

import pytest

from cdc.base.compiled import twin
from cdc.base.lsn import LSN
from cdc.contract.header import HeaderStamp
from cdc.contract.ports import StoredRecord
from cdc.kafka.replay.cut import climb
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(twin("cdc.kafka.replay._cut") is None, reason="nothing was compiled"),
]


def header(rng: random.Random, lsn: int) -> bytes:
    """As the bridge writes it, mostly; else cut short, or with a byte that is another one."""
    stamp = HeaderStamp(LSN(lsn), rng.randrange(1 << 32), rng.randrange(1 << 50))
    whole = stamp.header(rng.choice("cudrt"), rng.choice((1, rng.randrange(1 << 62))), rng.randbytes(8).hex())
    match rng.randrange(12):
        case 0:
            return whole[: rng.randrange(len(whole) + 1)]
        case 1:
            at = rng.randrange(len(whole))
            return whole[:at] + bytes((rng.choice((rng.randrange(256), *b"0A/;=\0")),)) + whole[at + 1 :]
        case 2:
            return whole.replace(b"seq=", b"seq=" + b"9" * rng.randrange(20))
    return whole


def test_it_climbs_alike() -> None:
    rng = random.Random(SEED)
    in_c = twin("cdc.kafka.replay._cut").climb
    fell = 0
    for _ in range(times(2_000, soak=200_000)):
        lsn, records = rng.choice((0, 5, 1 << 32, (1 << 64) - 200)), []
        start = LSN(max(lsn - rng.randrange(3), 0))
        for offset in range(rng.randrange(30)):
            lsn += rng.choice((0, 1, 1, 5))
            there = rng.randrange(1 << rng.randrange(1, 65)) if rng.random() < 0.05 else min(lsn, (1 << 64) - 1)
            records.append(StoredRecord("t", 0, offset, b"k", b"v", header(rng, there)))
        found = climb(records, start)
        assert in_c(records, start) == found, f"SEED={SEED} {[each.header for each in records]}"
        fell += found[1]
    assert fell > 100, f"SEED={SEED}"
