"""Objects written in C equal those written in Python byte for byte, or are declined."""

from __future__ import annotations

import os
import random

import pytest

from cdc.contract.change import Row
from cdc.contract.formats.format import NOT_ENCODABLE, RowWriter
from cdc.contract.formats.json_format import JSON
from tests.support import random_rows
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        JSON.writer(random_rows.columns(random.Random(1))).compiled is None, reason="nothing was compiled"
    ),
]


def test_objects_are_the_same_or_declined() -> None:
    rng = random.Random(SEED)
    taken = declined = 0
    for _ in range(times(150, soak=5_000)):
        columns = random_rows.columns(rng)
        writer = JSON.writer(columns)
        compiled = writer.compiled
        assert compiled.width == len(columns)
        for _ in range(20):
            row = random_rows.row(rng, columns)
            found = compiled.encode(row)
            if found is None:
                declined += 1
            else:
                taken += 1
                assert (found, ()) == (_in_python(writer, row), writer.null_documents(row)), (SEED, columns, row)
    assert taken > declined, "declining everything would be right, too"


@pytest.mark.parametrize("cell", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80"])
@pytest.mark.parametrize("kind", ["text", "int4", "uuid", "float8", "jsonb", "_int4", "_text"])
def test_what_is_not_utf8_is_declined(cell: bytes, kind: str) -> None:
    columns = random_rows.columns_of(kind)
    assert JSON.writer(columns).compiled.encode((cell,)) is None


def _in_python(writer: RowWriter, row: Row) -> bytes | None:
    try:
        return writer.encode(row)
    except NOT_ENCODABLE:
        return None
