"""Requests in the progress topic: each is handed out once, also if it is read twice, and none that was withdrawn."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.bridge.backfill import requests
from cdc.bridge.backfill.requests import RequestBox
from cdc.contract.backfill import request_key, request_value
from cdc.contract.ports import StoredRecord
from cdc.contract.record import BackfillRequest, RepairKey, RepairRequest
from cdc.contract.repair import repair_request_key, repair_request_value

ENDS = {("p", 0): 7}


class Reader:
    """Brings what a test has written, as one batch each."""

    def __init__(self) -> None:
        self.batches: list[list[StoredRecord]] = []
        self.starts: Mapping[tuple[str, int], int] = {}
        self.polls = 0
        self.is_closed = False

    def add(self, starts: Mapping[tuple[str, int], int]) -> None:
        self.starts = starts

    def poll(self, _max_records: int, timeout_s: float) -> list[StoredRecord]:
        assert timeout_s == 0
        self.polls += 1
        return self.batches.pop(0) if self.batches else []

    def write(self, *records: tuple[bytes | None, bytes | None]) -> None:
        self.batches.append([StoredRecord("p", 0, 0, key, value, b"") for key, value in records])

    def close(self) -> None:
        self.is_closed = True


class Box:
    """A box over such a reader, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader = Reader()
        self.now = 1_000.0
        self.options: Mapping[str, Any] = {}
        monkeypatch.setattr(requests, "TopicReader", self.made)
        monkeypatch.setattr(requests, "time", SimpleNamespace(monotonic=lambda: self.now))

    def made(self, options: Mapping[str, Any], admin: object) -> Reader:
        assert admin is not None
        self.options = options
        return self.reader

    def open(self, *waiting: BackfillRequest, repairs: tuple[RepairRequest, ...] = ()) -> RequestBox:
        admin: Any = SimpleNamespace(options={"bootstrap.servers": "k:1"})
        return RequestBox(admin, ENDS, waiting, repairs)

    def later(self) -> None:
        self.now += 0.5


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(monkeypatch)


def asked(name: str) -> BackfillRequest:
    return BackfillRequest(name, "start", ("public.t",))


def record(name: str) -> tuple[bytes, bytes]:
    return request_key(name), request_value(asked(name))


def repair(number: int) -> RepairRequest:
    return RepairRequest("r", number, "public.t", (RepairKey(b"%d" % number),))


def test_what_was_there_before_comes_first_and_once(box: Box) -> None:
    opened = box.open(asked("a"))
    assert box.reader.starts == ENDS
    assert box.options["bootstrap.servers"] == "k:1"
    box.reader.write(record("a"), record("b"))
    box.reader.write(record("c"), record("b"))
    assert opened.take() == [asked("a"), asked("b"), asked("c")]
    box.later()
    assert opened.take() == []


def test_brokers_are_asked_twice_a_second(box: Box) -> None:
    opened = box.open()
    opened.take()
    box.reader.write(record("a"))
    box.now += 0.49
    assert opened.take() == []
    assert box.reader.polls == 1
    box.now += 0.01
    assert opened.take() == [asked("a")]


def test_other_records_are_no_requests(box: Box) -> None:
    opened = box.open()
    box.reader.write(
        (None, b"{}"), (b'{"stream":"s"}', b"{}"), (request_key("a"), None), (request_key("b"), b"newer"), record("c")
    )
    assert opened.take() == [asked("c")]
    assert opened.repairs == {}


def test_parts_of_repairs_stay_until_they_are_taken_or_withdrawn(box: Box) -> None:
    opened = box.open(repairs=(repair(0), repair(1)))
    keys = [repair_request_key("r", number) for number in range(4)]
    assert opened.repairs == {keys[0]: repair(0), keys[1]: repair(1)}
    box.reader.write(*((keys[number], repair_request_value(repair(number))) for number in (2, 3)), (keys[3], None))
    assert opened.take() == []
    assert list(opened.repairs) == [keys[0], keys[1], keys[2]]
    opened.repairs.clear()
    box.reader.write(
        *((keys[number], repair_request_value(repair(number))) for number in range(4)), (keys[1], b"newer")
    )
    box.later()
    opened.take()
    assert opened.repairs == {}, "each was told before"


def test_a_part_that_cannot_be_parsed_is_ignored(box: Box) -> None:
    opened = box.open()
    box.reader.write(
        (repair_request_key("r", 0), b"newer"), (repair_request_key("r", 1), repair_request_value(repair(1)))
    )
    opened.take()
    assert list(opened.repairs) == [repair_request_key("r", 1)]


def test_closing_closes_the_client(box: Box) -> None:
    box.open().close()
    assert box.reader.is_closed
