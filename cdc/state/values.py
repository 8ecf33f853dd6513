"""An application's value ↔ the JSON bytes of a record. Only a JSON object is a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson
from pydantic import BaseModel

from cdc.base.errors import ValueRefused

Value: TypeAlias = "Mapping[str, Any] | BaseModel"
"""The value of a key: an object, as a mapping or as a pydantic model."""


def encode(value: Value) -> bytes:
    """Returns the value as JSON, in the order of its fields, without blanks.

    Raises:
        ValueRefused: the value is not an object, or JSON cannot represent it.
    """
    content = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    if not isinstance(content, Mapping):
        raise ValueRefused(
            f"invalid value {value!r}: it is not an object. None, null and empty bytes do not delete a key; readers "
            "take them for values",
            remedy="give a mapping or a pydantic model; to delete, call delete(key)",
        )
    _refuse_not_a_number(content)
    try:
        return orjson.dumps(dict(content))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueRefused(
            f"the value cannot be written as JSON: {error}", remedy="write decimals and other types JSON lacks as text"
        ) from error


def decode(value: bytes) -> dict[str, Any]:
    """Returns the object that the bytes hold.

    Raises:
        ValueRefused: the bytes are not a JSON object, so another program wrote them.
    """
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueRefused(
            f"the value {value[:100]!r} is not JSON: {error}", remedy="find out which program writes it"
        ) from error
    if not isinstance(content, dict):
        raise ValueRefused(f"the value {value[:100]!r} is not a JSON object", remedy="find out which program writes it")
    return content


def _refuse_not_a_number(content: Any) -> None:
    """Refuses NaN and infinity at any depth. JSON lacks them, and encoders silently write null instead."""
    if isinstance(content, float) and not math.isfinite(content):
        raise ValueRefused(
            f"the value holds {content}, which JSON cannot represent", remedy="write it as text, or leave it out"
        )
    if isinstance(content, Mapping):
        for each in content.values():
            _refuse_not_a_number(each)
    elif isinstance(content, list | tuple):
        for each in content:
            _refuse_not_a_number(each)
