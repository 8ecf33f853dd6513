"""The section ``debezium``: how values in Debezium's envelope are written, in the words of Debezium's own options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

_LOSSY: Final[Mapping[str, str]] = {
    "double": "double rounds numbers: write precise or string",
    "connect": "connect cuts times to milliseconds: write adaptive, microseconds, nanoseconds or isostring",
    "numeric": "numeric takes each month for 30.4 days: write string",
}


def _lossless(value: object) -> object:
    """Refuses Debezium's modes that change values; each with its reason."""
    if isinstance(value, str) and value in _LOSSY:
        raise ValueError(_LOSSY[value])
    return value


def _with_tombstones(value: Any) -> Any:
    if value is False:
        raise ValueError(
            "without a null value, a compacted topic would keep every deleted key for ever; leave the option out"
        )
    return value


_Decimal = Annotated[Literal["precise", "string"], BeforeValidator(_lossless)]
_Time = Annotated[
    Literal["adaptive", "adaptive_time_microseconds", "isostring", "microseconds", "nanoseconds"],
    BeforeValidator(_lossless),
]


class DebeziumConfig(BaseModel):
    """How values in Debezium's envelope are written; used only with topics.envelope: debezium."""

    model_config = _STRICT

    decimal_handling_mode: _Decimal = "precise"
    """How numeric and money are written: precise (default, as Debezium's) as the bytes of a number, string as digits,
    which also holds NaN and the infinities."""
    time_precision_mode: _Time = "adaptive"
    """How date, time and timestamp are written: adaptive (default, as Debezium's) as days, and as milliseconds or
    microseconds by the column's precision; adaptive_time_microseconds the same, but a time always in microseconds;
    microseconds and nanoseconds always in that unit; isostring as text in ISO 8601."""
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """How bytea is written: bytes (default, as Debezium's), which JSON shows in base64, or a string in that encoding;
    hex has two digits for each byte."""
    hstore_handling_mode: Literal["json", "map"] = "json"
    """How hstore is written: json (default, as Debezium's) as a string that holds an object, map as an object."""
    interval_handling_mode: Annotated[Literal["string"], BeforeValidator(_lossless)] = "string"
    """How interval is written: string (default) as P1Y2M3DT4H5M6.78S. Debezium's own default, numeric, is not exact."""
    tombstones_on_delete: Annotated[Literal[True], BeforeValidator(_with_tombstones)] = True
    """Whether a null value follows each delete: always, because compaction removes a key only for a null value."""
    schemas_enable: bool = False
    """Whether each value in JSON contains its schema, as Kafka Connect's JsonConverter writes it. False by default,
    because the schema is many times as large as most rows."""
