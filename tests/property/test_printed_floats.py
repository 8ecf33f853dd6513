"""PostgreSQL prints floating point numbers as ``cdc.contract.floats`` says."""

from __future__ import annotations

import math
import os
import random
import struct

from cdc.contract.floats import double_text, single_text
from tests.support.servers import Database
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_OPTIONS = "-c extra_float_digits=1"


def test_doubles(database: Database) -> None:
    rng = random.Random(SEED)
    powers = [math.ldexp(1, exponent) for exponent in range(-1074, 1024)]
    chance = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(times(20_000, soak=500_000))]
    whole = [float(rng.getrandbits(rng.randrange(40, 70))) for _ in range(5_000)]
    numbers = [*powers, *chance, *whole, *(10.0**exponent for exponent in range(-300, 309))]
    with database.connect(options=_OPTIONS) as connection:
        rows = connection.execute("SELECT v::text FROM unnest(%b::float8[]) v", (numbers,)).fetchall()
    assert [double_text(value) for value in numbers] == [text for (text,) in rows], f"SEED={SEED}"


def test_reals(database: Database) -> None:
    rng = random.Random(SEED)
    powers = [struct.pack("<I", exponent << 23) for exponent in range(256)]
    chance = [rng.randbytes(4) for _ in range(times(20_000, soak=500_000))]
    numbers = [*powers, *chance]
    values = [struct.unpack("<f", raw)[0] for raw in numbers]  # as doubles, which the server converts back exactly
    with database.connect(options=_OPTIONS) as connection:
        rows = connection.execute("SELECT v::float4::text FROM unnest(%b::float8[]) v", (values,)).fetchall()
    assert [single_text(raw) for raw in numbers] == [text for (text,) in rows], f"SEED={SEED}"
