"""Keys and values of the backfill records in ``{name}.__progress``: how far backfills are, and people's requests."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from cdc.contract.parsing import as_attributes, parse_record
from cdc.contract.record import BackfillProgress, BackfillRequest


def backfill_key(table: str) -> bytes:
    """The key of the record about a table's backfill; ``table`` is ``namespace.table``."""
    return orjson.dumps({"backfill": table})


def request_key(request: str) -> bytes:
    """The key of the record with a request; ``request`` is its id."""
    return orjson.dumps({"request": request})


def is_backfill_key(key: bytes | None) -> bool:
    """Whether a record of the progress topic says how far a backfill is."""
    return key is not None and key.startswith(b'{"backfill":')


def is_request_key(key: bytes | None) -> bool:
    """Whether a record of the progress topic is a request."""
    return key is not None and key.startswith(b'{"request":')


def backfill_value(progress: BackfillProgress) -> bytes:
    """The record's value: one JSON object, whose members have the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(progress), "lsn": str(progress.lsn)})


def parse_backfill(value: bytes) -> BackfillProgress:
    """Parse a backfill's progress.

    Raises:
        DecodeError: not a backfill record of version 1.
    """
    return parse_record("backfill", "progress", value, _backfill)


def request_value(request: BackfillRequest) -> bytes:
    """The record's value: one JSON object, whose members have the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(request)})


def parse_request(value: bytes) -> BackfillRequest:
    """Parse a backfill request.

    Raises:
        DecodeError: not a request of version 1.
    """
    return parse_record("backfill request", "progress", value, _request)


def _backfill(fields: dict[str, Any]) -> BackfillProgress:
    found = as_attributes(BackfillProgress)(fields)
    _check_choice(found)
    return found


def _request(fields: dict[str, Any]) -> BackfillRequest:
    found = as_attributes(BackfillRequest)(fields)
    _check_choice(found)
    return found


def _check_choice(chosen: BackfillProgress | BackfillRequest) -> None:
    """Refuse what must not go into a query."""
    if "\0" in (chosen.where or "") or (chosen.rate is not None and chosen.rate < 1):
        raise ValueError("where or rate")
