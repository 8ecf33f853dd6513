"""Parses the values of ``--as-of``, ``--offsets`` and ``--every``. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import ValidationError

from cdc.base.errors import ConfigError
from cdc.base.lsn import LSN
from cdc.contract.jobspec.snapshot import AsOf, AsOfLsn, AsOfNow, AsOfOffsets, AsOfTime

_DURATION: Final = re.compile(r"([0-9]+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_as_of(text: str, offsets: str | None) -> AsOf:
    """Returns the point in time that the options name.

    Raises:
        ConfigError: a value is invalid, or both options are given.
    """
    if offsets is not None:
        if text != "now":
            raise ConfigError("--as-of and --offsets both name a point", remedy="give one of them")
        return _offsets(offsets)
    if text == "now":
        return AsOfNow()
    if "/" in text:
        try:
            return AsOfLsn(lsn=str(LSN.parse(text)))
        except ValueError as error:
            raise ConfigError(f"--as-of: {error}", remedy="write it as pg_current_wal_lsn() prints it") from error
    return AsOfTime(time_us=parse_time(text, "--as-of"))


def parse_time(text: str, option: str) -> int:
    """Returns an ISO 8601 time as µs since 1970.

    Raises:
        ConfigError: the time is invalid, or has no time zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"invalid time {text!r} in {option}", remedy="write it as 2026-11-21T15:00:00Z, or with another zone"
        ) from error
    if moment.tzinfo is None:
        raise ConfigError(f"{option} {text!r} has no time zone", remedy=f"add it: {option} {text}Z for UTC")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def parse_every(text: str) -> float:
    """Returns a duration such as ``30s``, ``15m``, ``1h`` or ``1d`` in seconds.

    Raises:
        ConfigError: the duration is invalid, or zero.
    """
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not seconds:
        raise ConfigError(f"invalid duration {text!r} in --every", remedy="write it as 30s, 15m, 1h or 1d")
    return seconds


def _offsets(text: str) -> AsOf:
    try:
        return AsOfOffsets.model_validate_json('{"offsets":' + text + "}")
    except ValidationError as error:
        raise ConfigError(
            f"invalid --offsets {text!r}: expected offsets by topic and partition",
            remedy="""for instance --offsets '{"shop.public.orders":{"0":120,"1":98}}'""",
        ) from error
