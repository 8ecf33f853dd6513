"""Lines of COPY text written in C equal those written in Python byte for byte, or are declined."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence

import pytest

from cdc.base import compiled
from cdc.contract.change import Column
from cdc.contract.formats import json_rows
from cdc.contract.formats.format import NOT_ENCODABLE, ReadColumn
from cdc.contract.formats.json_format import JSON
from cdc.contract.pgtypes import sql_type
from cdc.contract.ports import StoredRecord
from cdc.sink.postgres.rows import RowForm
from cdc.sink.rejections import RecordRejected
from cdc.sink.topic_rows import RowTexts
from tests.support import random_rows
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(compiled.twin("cdc.contract.formats._json_rows") is None, reason="nothing was compiled"),
]

ODD = (
    "null", "NULL", "nul", "nulll", "true", "tru", "false", "0", "-0", "00", "-", "7", "-7", "01", "+1", "1.", ".5",
    "1.10", "1e3", "1E+3", "1e", "1e-", "-1.5e-7", "1e999", "-1e-999", "9" * 18, "9" * 19, "-" + "9" * 19, "9" * 20,
    "1" * 400, "NaN", "Infinity", '"NaN"', '""', '" "', '"a', '"a" "b"', '"\\N"', '"\\\\N"', '"\\\\."', '"a\\tb\\n\\r"',
    '"\\b\\f\\/\\""', '"\\x"', '"\\', '"\\u0000"', '"\\u0041"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\u12"', '"\x00"',
    '"\x01"', '"\n"', '"\t"', '"\x7f"', '"é\u2028𝔘"', '"{1,2}"', '"[0:1]={1,2}"', "[]", "[ ]", "[1,2]", "[1, 2]",
    "[1,]", "[,1]", "[1 2]", "[1,2", "[null,-1.5,true]", "[null,nul]", '["NaN",1]', "[[1],[2]]", '["a","b"]', '[""]',
    '["a b","c,d","{","}","[","]"]', '["NULL","null","nullx","Nul"]', '["a\\"b","\\\\"]', '["é","\u00a0","\u3000"]',
    '["a",1]', '["a",null]', '["a",["b"]]', '["a\tb"]', "{}", "{ }", '{"a":1}', '{"a" : [1 , {"b": "\\/\\u0000"}]}',
    '{"a":1,}', '{"a"}', '{"a":}', '{a:1}', '{"a":1,"a":2}', '{"\\n":"\\t\\\\"}', '{"a":\n1,\t"b":\r2}', '{"a":"\x02"}',
    '"a\\"b"', "[" * 49 + "]" * 49, "[" * 60 + "]" * 60, "[" * 5_000 + "]" * 5_000, '{"a":' * 30 + "1" + "}" * 30,
)  # fmt: skip
"""What may stand where a value should."""


class Table:
    """A relation's columns, and both ways to read its rows.

    Some columns are generated in the replica, so that they are left out; some came later, so that older rows do not
    have them.
    """

    def __init__(self, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns = random_rows.columns(rng)
        left_out = {each.name for each in self.columns[1:] if rng.random() < 0.1}
        taken = [each for each in self.columns if each.name not in left_out]
        if rng.random() < 0.1:
            rng.shuffle(taken)
        read = [ReadColumn(each.name, sql_type(each), rng.choice(",,,;")) for each in taken]
        self.reader = JSON.reader(read, sorted(left_out))
        with monkeypatch.context() as patched:
            patched.setattr(json_rows, "twin", lambda _: None)
            self._in_python = RowForm(read, sorted(left_out))

    def in_python(self, source: bytes, are_keys: bool) -> bytes | str:
        """The line, or why there is none."""
        record = StoredRecord("t", 0, 0, source, source, b"")
        try:
            return b"".join(self._in_python.blocks([record], of_key=are_keys))
        except RecordRejected as error:
            return error.reason


def test_lines_are_the_same_or_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(SEED)
    taken = declined = ordinary = 0
    for _ in range(times(200, soak=5_000)):
        table = Table(rng, monkeypatch)
        for _ in range(20):
            source, is_ordinary = any_source(rng, table.columns)
            are_keys = rng.random() < 0.2
            text, left = table.reader.lines([source], are_keys=are_keys)
            if left:
                assert (text, left) == (b"", [0])
                declined += 1
            else:
                assert text == table.in_python(source, are_keys), (SEED, table.columns, source)
                taken += 1
                ordinary += is_ordinary
    assert declined > 100, "not even broken ones"
    assert ordinary > taken / 3, "declining everything would be right, too"


def test_rows_that_are_declined_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(SEED)
    table = Table(rng, monkeypatch)
    sources = [any_source(rng, table.columns)[0] for _ in range(500)] + [None]
    text, left = table.reader.lines(sources, are_keys=False)
    alone = [table.reader.lines([each], are_keys=False) for each in sources]
    assert left == [place for place, (_, declined) in enumerate(alone) if declined]
    assert text == b"".join(line for line, _ in alone)


def test_texts_from_lines_are_those_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole batches, in which some rows are declined."""
    rng = random.Random(SEED)
    for _ in range(times(100, soak=2_000)):
        columns = random_rows.columns(rng)
        read = [ReadColumn(each.name, sql_type(each), ",") for each in columns]
        sources = [(any_source(rng, columns)[0], ordinary_source(rng, columns))[rng.random() < 0.95] for _ in range(9)]
        records = [StoredRecord("t", 0, place, source, source, b"") for place, source in enumerate(sources)]
        in_c = RowTexts(read)
        with monkeypatch.context() as patched:
            patched.setattr(json_rows, "twin", lambda _: None)
            in_python = RowTexts(read)
        assert texts_or_error(in_c, records) == texts_or_error(in_python, records), (SEED, columns, sources)


def texts_or_error(texts: RowTexts, records: Sequence[StoredRecord]) -> list[list[str]] | str:
    try:
        return [[*row] for row in texts.rows(records, of_key=False)]
    except RecordRejected as error:
        return str(error)


@pytest.mark.parametrize("cell", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80", b"\x00"])
@pytest.mark.parametrize("kind", ["text", "jsonb", "text[]", "uuid"])
def test_what_is_no_text_is_declined(cell: bytes, kind: str) -> None:
    reader = JSON.reader([ReadColumn("c", kind, ",")])
    for value in b'"%b"' % cell, b'["%b"]' % cell, b'{"%b":1}' % cell:
        assert reader.lines([b'{"c":%b}' % value], are_keys=False) == (b"", [0])


def any_source(rng: random.Random, columns: Sequence[Column]) -> tuple[bytes, bool]:
    """A row's value as it should be, or not at all; and whether it is as the bridge writes it."""
    source = ordinary_source(rng, columns)
    way = rng.randrange(6)
    if way <= 2:
        return source, True
    if way == 3:
        return random_rows.damaged(rng, source), False
    if way == 4:
        return respelled(rng, source), False
    return odd(rng, columns), False


def ordinary_source(rng: random.Random, columns: Sequence[Column]) -> bytes:
    while True:
        try:
            source = JSON.writer(columns).encode(random_rows.row(rng, columns, damage=0.0))
            json.loads(source)
        except NOT_ENCODABLE:  # documents are spliced unread, and some are none
            continue
        return source


def respelled(rng: random.Random, source: bytes) -> bytes:
    """The same object, members in another order, more, less or twice of them, spelled otherwise."""
    members = list(json.loads(source, parse_float=str, parse_int=int).items())
    for _ in range(rng.randrange(3)):
        change = rng.randrange(4)
        if change == 0:
            rng.shuffle(members)
        elif change == 1 and members:
            del members[rng.randrange(len(members))]
        elif change == 2 and members:
            members.insert(rng.randrange(len(members)), rng.choice(members))
        else:
            members.append((rng.choice(("more", "", "c0")), 1))
    blank = rng.choice(("", "", "", " ", "\n"))
    spelled = [
        f"{json.dumps(name, ensure_ascii=False)}{blank}:{json.dumps(value, ensure_ascii=rng.random() < 0.5)}"
        for name, value in members
    ]
    return (rng.choice(("", "", " ")) + "{" + f",{blank}".join(spelled) + "}" + rng.choice(("", "", " "))).encode()


def odd(rng: random.Random, columns: Sequence[Column]) -> bytes:
    members = [f"{json.dumps(each.name, ensure_ascii=False)}:{rng.choice(ODD)}" for each in columns[:3]]
    return ("{" + ",".join(members) + "}").encode()
