"""Records of COPY's lines made in C equal those made in Python byte for byte, order and numbers included."""

from __future__ import annotations

import os
import random

import pytest

from cdc.base.errors import CdcError
from cdc.base.lsn import LSN
from cdc.bridge.backfill.lines import Encoded, LineEncoder
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.header import BACKFILL, HeaderStamp
from cdc.contract.hiding import Hiding
from tests.support import random_rows
from tests.support.engines import LIMITED_BYTES
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
SAME = ("shop.public.t", b"", b"")
STAMP = HeaderStamp(LSN(0x1_0192_5728), None, 1_795_190_486_566_123, "734:736:734")


def encoders(
    columns: tuple[Column, ...], key: tuple[str, ...], *, hides: bool = False, limits: bool = False
) -> tuple[LineEncoder, LineEncoder]:
    """In C, and in Python."""
    relation = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, columns)
    hiding = Hiding(relation, random_rows.rules(columns, key)) if hides else None
    table = TableEncoder(relation, key, "shop.public.t", hiding=hiding)
    if limits:
        table.quarantines(LIMITED_BYTES)
    in_c, in_python = LineEncoder(table), LineEncoder(table)
    in_python.compiled = None
    return in_c, in_python


pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        encoders(random_rows.columns_of("int4"), ("c0",))[0].compiled is None, reason="nothing was compiled"
    ),
]


def test_portions_are_the_same() -> None:
    rng = random.Random(SEED)
    taken = declined = refused = 0
    for _ in range(times(300, soak=10_000)):
        columns = random_rows.columns(rng)
        names = [column.name for column in columns]
        key = tuple(rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3)))))
        in_c, in_python = encoders(columns, key, hides=rng.random() < 0.5, limits=rng.random() < 0.3)
        lines = [random_rows.copy_line(rng, columns, damage=rng.choice((0, 0.02, 0.2))) for _ in range(10)]
        touched = recording(*[each for each in keys(in_python, lines) if rng.random() < 0.3])
        seq = rng.choice((0, 8, 98, rng.randrange(1 << 62)))
        expected = encode(in_python, lines, touched, seq)
        assert encode(in_c, lines, touched, seq) == expected, (SEED, columns, lines, touched.keys)
        refused += isinstance(expected, str)
        for line in lines:
            alone = encode(in_c, [line], touched, seq)
            assert alone == encode(in_python, [line], touched, seq), (SEED, columns, line, touched.keys)
            place, _ = in_c.compiled.write([line], 0, touched.keys, SAME, seq, [])
            taken += place
            declined += 1 - place
    assert taken > declined > 0, "declining everything would be right, too"
    assert refused


def test_a_declined_line_keeps_its_place_and_number() -> None:
    in_c, in_python = encoders(random_rows.columns_of("int4", "jsonb"), ("c0",))
    lines = [b"1\t{}\n", b"2\tnull\n", b"3\t[]\n", b"4\t\\N\n", b"5\t null\n", b"6\t1\n"]
    touched = recording(b'{"c0":3}', b'{"c0":5}')
    records, size = in_c.encode(lines, touched, STAMP, 9)
    assert (records, size) == in_python.encode(lines, touched, STAMP, 9)
    assert [key for _, key, *_ in records] == [b'{"c0":%d}' % each for each in (1, 2, 4, 6)]
    assert [header.split(b";")[3] for *_, header, _ in records] == [b"seq=%d" % each for each in (10, 11, 12, 13)]
    assert [header.endswith(b";json_null=1") for *_, header, _ in records] == [False, True, False, False]
    assert all(header.startswith(b"v=1;op=%b;" % BACKFILL.encode()) for *_, header, _ in records)


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"1", b"1\n", b"1\ta\tb\n", b"1\ta", b"\\N\ta\n", b"1\ta\\\n", b"1\\\ta\n", b"1\t\xc3\n", b"\t\t\n"],
)
def test_what_is_not_plain_is_declined(line: bytes) -> None:
    in_c, _ = encoders(random_rows.columns_of("int4", "text"), ("c0",))
    records: list[object] = []
    assert in_c.compiled.write([b"7\tb\n", line], 0, {}, SAME, 0, records) == (1, len(b'{"c0":7,"c1":"b"}'))
    assert len(records) == 1


def test_what_is_no_line_does_no_harm() -> None:
    in_c, _ = encoders(random_rows.columns_of("int4", "text"), ("c0",))
    write = in_c.compiled.write
    assert write([], 0, {}, SAME, 0, []) == (0, 0)
    assert write([None], 0, {}, SAME, 0, []) == (0, 0)
    assert write([b"1\ta\n"], 5, {}, SAME, 0, []) == (5, 0)
    with pytest.raises(ValueError, match="no such line"):
        write([b"1\ta\n"], -1, {}, SAME, 0, [])
    with pytest.raises(TypeError):
        write([b"1\ta\n"], 0, None, SAME, 0, [])
    values, writers_of_keys, _, most = in_c.table.compiled or (None, None, (), 0)
    for places in ((), (2,), (-1,), (0, 1)):
        with pytest.raises(ValueError, match="places"):
            type(in_c.compiled)(writers_of_keys, values, places, most)


def encode(encoder: LineEncoder, lines: list[bytes], touched: Recording, seq: int) -> Encoded | str:
    try:
        return encoder.encode(lines, touched, STAMP, seq)
    except CdcError as error:
        return str(error)


def recording(*touched: bytes) -> Recording:
    made = Recording("shop.public.t", ())
    made.keys.update(dict.fromkeys(touched, 700))
    return made


def keys(encoder: LineEncoder, lines: list[bytes]) -> list[bytes]:
    found = (encode(encoder, [line], recording(), 0) for line in lines)
    return [key for each in found if not isinstance(each, str) for _, key, *_ in each.records]
