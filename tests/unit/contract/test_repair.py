"""Repairs in the progress topic: there and back, in parts of bounded size, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.backfill import backfill_key, is_backfill_key, is_request_key, request_key
from cdc.contract.record import RepairKey, RepairOutcome, RepairRequest
from cdc.contract.repair import (
    PART_BYTES,
    PART_KEYS,
    is_repair_key,
    is_repair_request_key,
    parse_repair_outcome,
    parse_repair_request,
    parts_of,
    repair_key,
    repair_outcome_value,
    repair_request_key,
    repair_request_value,
)

REQUEST = RepairRequest("r1", 3, "public.t", (RepairKey(b'{"id":1}'), RepairKey(b"\xff\x00", 2)))
OUTCOME = RepairOutcome("public.t", "shop.public.t", "r1", 3, 5, 2, 1, 70, LSN(99), "it is gone", "make it again")


def test_there_and_back() -> None:
    assert parse_repair_request(repair_request_value(REQUEST)) == REQUEST
    assert parse_repair_outcome(repair_outcome_value(OUTCOME)) == OUTCOME


def test_keys_are_told_apart() -> None:
    keys = [backfill_key("public.t"), request_key("r"), repair_key("public.t"), repair_request_key("r", 0), None]
    tests = [is_backfill_key, is_request_key, is_repair_key, is_repair_request_key]
    assert [[is_one(key) for key in keys].index(True) for is_one in tests] == [0, 1, 2, 3]
    assert not any(is_one(None) for is_one in tests)
    assert repair_request_key("r", 1) != repair_request_key("r", 2)


def test_parts_are_bounded_by_their_keys() -> None:
    keys = [RepairKey(b'{"id":%d}' % i) for i in range(2 * PART_KEYS + 1)]
    parts = list(parts_of("r", "public.t", keys))
    assert [len(each.keys) for each in parts] == [PART_KEYS, PART_KEYS, 1]
    assert [each.part for each in parts] == [0, 1, 2]
    assert [key for each in parts for key in each.keys] == keys


def test_parts_are_bounded_by_their_bytes() -> None:
    keys = [RepairKey(b"k" * (PART_BYTES // 3)) for _ in range(4)] + [RepairKey(b"l" * (2 * PART_BYTES))]
    assert [len(each.keys) for each in parts_of("r", "public.t", keys)] == [3, 1, 1]
    assert list(parts_of("r", "public.t", [])) == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"v":2}',
        b'{"v":1}',
        b'{"v":1,"request":"r","part":0,"table":"t","keys":[["%",null]]}',
        b'{"v":1,"request":"r","part":0,"table":"t","keys":[],"an_option_of_later":1}',
    ],
)
def test_anything_else_is_refused(value: bytes) -> None:
    for parse in (parse_repair_request, parse_repair_outcome):
        with pytest.raises(DecodeError, match="version 1"):
            parse(value)


def test_keys_are_for_ever() -> None:
    assert repair_request_key("r", 3) == b'{"repair_request":"r","part":3}'
    assert repair_key("public.t") == b'{"repair":"public.t"}'


def test_a_part_is_filled_to_the_byte() -> None:
    half, more = RepairKey(b"k" * (PART_BYTES // 2)), RepairKey(b"k" * (PART_BYTES // 2 + 1))
    assert [len(each.keys) for each in parts_of("r", "public.t", [half, half, half, half])] == [2, 2]
    assert [len(each.keys) for each in parts_of("r", "public.t", [half, more, half])] == [1, 1, 1]
    assert {(each.request, each.table) for each in parts_of("r", "public.t", [half] * 5)} == {("r", "public.t")}
