"""Keys and values of the backfill records in ``{name}.__progress``: how far backfills are, and people's requests."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeVar

import orjson

from cdc.contract.parsing import only_attributes, parse_record
from cdc.contract.record import BackfillProgress, BackfillRequest, LeafProgress

_Chosen = TypeVar("_Chosen", BackfillProgress, BackfillRequest)


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
    for leaf in fields["leaves"]:
        only_attributes(LeafProgress)(leaf)
    return _checked(fields, BackfillProgress)


def _request(fields: dict[str, Any]) -> BackfillRequest:
    return _checked(fields, BackfillRequest)


def _checked(fields: dict[str, Any], kind: type[_Chosen]) -> _Chosen:
    """Refuse what must not go into a query, too."""
    found = only_attributes(kind)(fields)
    if "\0" in (found.where or "") or (found.rate is not None and found.rate < 1):
        raise ValueError("where or rate")
    return found
