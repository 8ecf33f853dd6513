"""Keys and values of the backfill records in ``{name}.__progress``: how far backfills are, and people's requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from cdc.base.lsn import LSN
from cdc.contract.parsing import parse_record
from cdc.contract.record import BackfillProgress, BackfillRequest, LeafProgress


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
    leaves = tuple(
        LeafProgress(**{**leaf, "done": tuple((int(start), int(end)) for start, end in leaf["done"])})
        for leaf in fields.pop("leaves")
    )
    lsn, below = LSN.parse(fields.pop("lsn")), tuple(map(int, fields.pop("below")))
    _check_choice(fields)
    return BackfillProgress(**fields, lsn=lsn, below=below, leaves=leaves)


def _request(fields: dict[str, Any]) -> BackfillRequest:
    if fields["command"] not in ("start", "pause", "resume", "cancel"):
        raise ValueError("command")
    tables = fields.pop("tables")
    if not all(isinstance(table, str) for table in tables):
        raise TypeError("tables")
    _check_choice(fields)
    return BackfillRequest(**fields, tables=tuple(tables))


def _check_choice(fields: Mapping[str, Any]) -> None:
    """Refuse values of a wrong type: anybody who may write to the topic chose them, and they go into a query."""
    where, rate = fields.get("where"), fields.get("rate")
    if not isinstance(fields["request"], str) or not isinstance(where, str | None) or "\0" in (where or ""):
        raise TypeError("request or where")
    if rate is not None and (type(rate) is not int or rate < 1):
        raise TypeError("rate")
