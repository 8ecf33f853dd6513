"""Keys and values of the records in ``{name}.__progress`` about repairs by key: requests, in parts, and outcomes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Final

import orjson

from cdc.contract.parsing import only_attributes, parse_record
from cdc.contract.record import RepairKey, RepairOutcome, RepairRequest

PART_KEYS: Final = 500
PART_BYTES: Final = 256 * 1024
"""Limit for the keys of one part: any broker takes a record of this size, and the bridge publishes 500 rows quickly."""


def parts_of(request: str, table: str, keys: Iterable[RepairKey], *, gives_up: bool = False) -> Iterator[RepairRequest]:
    """Split a request into parts of at most ``PART_KEYS`` keys and about ``PART_BYTES``."""
    number, part, size = 0, list[RepairKey](), 0
    for each in keys:
        if len(part) == PART_KEYS or (part and size + len(each.key) > PART_BYTES):
            yield RepairRequest(request, number, table, tuple(part), gives_up)
            number, part, size = number + 1, [], 0
        part.append(each)
        size += len(each.key)
    if part:
        yield RepairRequest(request, number, table, tuple(part), gives_up)


def repair_request_key(request: str, part: int) -> bytes:
    """The key of the record with one part of a request."""
    return orjson.dumps({"repair_request": request, "part": part})


def repair_key(table: str) -> bytes:
    """The key of the record with a table's newest outcome; ``table`` is ``namespace.table``."""
    return orjson.dumps({"repair": table})


def is_repair_request_key(key: bytes | None) -> bool:
    """Whether a record of the progress topic is one part of a repair request."""
    return key is not None and key.startswith(b'{"repair_request":')


def is_repair_key(key: bytes | None) -> bool:
    """Whether a record of the progress topic is the outcome of a repair."""
    return key is not None and key.startswith(b'{"repair":')


def repair_request_value(request: RepairRequest) -> bytes:
    """The record's value: one JSON object with the attributes' names. Keys may be any bytes, so they are in base64."""
    keys = [[b64encode(each.key).decode(), each.partition] for each in request.keys]
    gives_up = {"gives_up": True} if request.gives_up else {}
    return orjson.dumps(
        {"v": 1, "request": request.request, "part": request.part, "table": request.table, "keys": keys, **gives_up}
    )


def repair_outcome_value(outcome: RepairOutcome) -> bytes:
    """The record's value: one JSON object, whose members have the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(outcome), "lsn": str(outcome.lsn)})


def parse_repair_request(value: bytes) -> RepairRequest:
    """Parse one part of a request.

    Raises:
        DecodeError: not a part of a request of version 1.
    """
    return parse_record("repair request", "progress", value, only_attributes(RepairRequest))


def parse_repair_outcome(value: bytes) -> RepairOutcome:
    """Parse an outcome.

    Raises:
        DecodeError: not an outcome of version 1.
    """
    return parse_record("repair", "progress", value, only_attributes(RepairOutcome))
