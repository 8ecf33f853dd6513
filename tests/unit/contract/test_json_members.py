"""What msgspec refuses and PostgreSQL takes is taken apart as msgspec would; what is not JSON is refused by both."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from cdc.contract.json_members import elements, member_texts, members

DEEP = b"[" * 5000 + b'{"a":[]}' + b"]" * 5000
HALF = rb'"\ud800"'


def in_bytes(found: dict[str, msgspec.Raw]) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in found.items()}


def test_a_document_that_is_too_deep_for_parsers() -> None:
    assert in_bytes(members(b'{"id":1, "v" : %b ,"w":"x"}' % DEEP)) == {"id": b"1", "v": DEEP, "w": b'"x"'}
    assert [bytes(each) for each in elements(b"[%b,null, 1.50 ]" % DEEP)] == [DEEP, b"null", b"1.50"]


def test_half_a_surrogate_pair() -> None:
    assert in_bytes(members(b'{"v":%b,"w":[1.10]}' % HALF)) == {"v": HALF, "w": b"[1.10]"}
    assert in_bytes(members(rb'{"v":{"a,}\"":"\udfff]"}}')) == {"v": rb'{"a,}\"":"\udfff]"}'}
    assert [bytes(each) for each in elements(b"[%b,[]]" % HALF)] == [HALF, b"[]"]
    assert member_texts(r'{"é":"\ud800", "x":{} }') == {"é": r'"\ud800"', "x": "{}"}


def test_the_last_of_two_members_with_one_name() -> None:
    assert in_bytes(members(b'{"v":1,"v":%b}' % HALF)) == {"v": HALF}


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"[", b"{}", b"[1,]", b"[,1]", b"[1 2]", b"[1]]", b"[1]x", b"[tru]", b"[01]", b"[1.]", b"[-]",
        b"[.5]", b"[NaN]", b"[\"\n\"]", b'["\\x"]', b'["\\ud80"]', b"[{1:2}]", b'[{"a"}]', b'[{"a":}]', b'[{"a":1,}]',
        b'[{"a" 1}]', b'[{"a":1]', b"[[}", b"[:]", b"null", b'"[]"',
    ],
)  # fmt: skip
def test_what_is_not_an_array_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        elements(text)
    deep = text.replace(b"[", b"[" + DEEP + b",", 1)
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        elements(deep)


@pytest.mark.parametrize(
    "text", [b"[]", b'{"v":[}]}', b'{"v":1', b'{"v":1}}', b"{v:1}", b'{"a":1 "b":2}', b'{"\\ud800":1}']
)
def test_what_is_not_an_object_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        members(text)
    with pytest.raises(ValueError, match=r"\w"):
        member_texts(text.decode())


def some(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth and kind < 0.4:
        return [some(rng, depth - 1) for _ in range(rng.randrange(4))]
    if depth and kind < 0.8:
        return {rng.choice('abc,}]"\\'): some(rng, depth - 1) for _ in range(rng.randrange(4))}
    return rng.choice([None, True, False, 0, -1.5e300, 7, "", 'a"b', "\\", "é", "[1,2]", "\n"])


def test_both_ways_find_the_same() -> None:
    """With half a surrogate pair at the end, which sends the text the other way."""
    rng = random.Random(7)
    for number in range(500):
        document = {f"{number}": some(rng, 4), "b": some(rng, 4)}
        text = json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()
        fast = in_bytes(members(text))
        slow = in_bytes(members(text[:-1] + b',"z":%b}' % HALF))
        assert slow == {**fast, "z": HALF}
        array = b"[%b]" % b" , ".join(fast.values())
        assert elements(array[:-1] + b",%b]" % HALF) == [*elements(array), msgspec.Raw(HALF)]


def test_whatever_is_damaged_is_refused_by_both_or_by_none() -> None:
    rng = random.Random(8)
    for _ in range(3000):
        text = bytearray(json.dumps({"a": some(rng, 3), "b": some(rng, 3)}).encode())
        text[rng.randrange(len(text))] = rng.choice(b'"[]{},:0-9en\\ \n')
        try:
            fast: dict[str, bytes] | None = in_bytes(members(bytes(text)))
        except msgspec.DecodeError:
            fast = None
        try:
            json.loads(bytes(text))
            is_json = True
        except ValueError:
            is_json = False
        assert (fast is not None) == is_json, bytes(text)
