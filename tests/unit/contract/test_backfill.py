"""Backfill records and requests of the progress topic: there and back, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses

import orjson
import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.backfill import (
    backfill_key,
    backfill_value,
    is_backfill_key,
    is_request_key,
    parse_backfill,
    parse_request,
    request_key,
    request_value,
)
from cdc.contract.progress import stream_key
from cdc.contract.record import BackfillProgress, BackfillRequest, LeafProgress

PROGRESS = BackfillProgress(
    table="public.t",
    topic="shop.public.t",
    request="r1",
    state="running",
    cause="initial",
    whole=False,
    where=None,
    rate=None,
    sweep=True,
    below=(3, 4),
    leaves=(LeafProgress("public", "t", 16_400, 2_000, ((0, 512), (1_024, 1_536))),),
    estimated_rows=100,
    rows=50,
    swept=0,
    seq=50,
    lsn=LSN(7),
    started_at=1,
    updated_at=2,
)
REQUEST = BackfillRequest("r2", "start", ("public.t",), where="id > 5", rate=100)


def test_there_and_back() -> None:
    assert parse_backfill(backfill_value(PROGRESS)) == PROGRESS
    assert parse_request(request_value(REQUEST)) == REQUEST


def test_open_until_done() -> None:
    assert PROGRESS.is_open
    assert not dataclasses.replace(PROGRESS, state="done").is_open


def test_keys_are_told_apart() -> None:
    keys = [backfill_key("public.t"), request_key("r2"), stream_key("cdc_shop"), None]
    assert [is_backfill_key(key) for key in keys] == [True, False, False, False]
    assert [is_request_key(key) for key in keys] == [False, True, False, False]


@pytest.mark.parametrize("value", [b"", b"[]", b'{"v":2}', b'{"v":1}', b'{"v":1,"command":"drop"}'])
def test_anything_else_is_refused(value: bytes) -> None:
    for parse in (parse_backfill, parse_request):
        with pytest.raises(DecodeError, match="version 1"):
            parse(value)


@pytest.mark.parametrize(
    "strange",
    [
        {"where": 5},
        {"where": "a\0b"},
        {"rate": "5"},
        {"rate": 0},
        {"rate": True},
        {"request": None},
        {"tables": "public.t"},
        {"an_option_of_later": 1},
    ],
)
def test_a_request_of_other_types_is_not_understood(strange: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        parse_request(orjson.dumps({**orjson.loads(request_value(REQUEST)), **strange}))


def test_one_row_a_second_is_a_rate() -> None:
    slow = dataclasses.replace(REQUEST, rate=1, where=None)
    assert parse_request(request_value(slow)) == slow
