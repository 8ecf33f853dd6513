"""An application's value ↔ the JSON bytes of a record. Only an object is a value; nothing else is taken for one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson
from pydantic import BaseModel

from cdc.base.errors import ValueRefused

Value: TypeAlias = "Mapping[str, Any] | BaseModel"
"""What a key may hold: an object, as a mapping or as a pydantic model."""


def encode(value: Value) -> bytes:
    """JSON, in the order of the fields, without blanks.

    Raises:
        ValueRefused: no object, or JSON cannot say what is in it.
    """
    content = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    if not isinstance(content, Mapping):
        raise ValueRefused(
            f"invalid value {value!r}: None, the word null and empty bytes do not delete, and readers take them for "
            "rows",
            remedy="give an object (a mapping or a pydantic model); delete(key) deletes",
        )
    _refuse_not_a_number(content)
    try:
        return orjson.dumps(dict(content))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueRefused(
            f"the value cannot be written as JSON: {error}", remedy="write decimals and what else JSON lacks as text"
        ) from error


def decode(value: bytes) -> dict[str, Any]:
    """The object.

    Raises:
        ValueRefused: these bytes are no JSON object: somebody else wrote them.
    """
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueRefused(f"the value {value[:100]!r} is no JSON: {error}", remedy="find out who writes it") from error
    if not isinstance(content, dict):
        raise ValueRefused(f"the value {value[:100]!r} is no JSON object", remedy="find out who writes it")
    return content


def _refuse_not_a_number(content: Any) -> None:
    """JSON has no NaN and no infinity; encoders write null in their place."""
    if isinstance(content, float) and not math.isfinite(content):
        raise ValueRefused(
            f"the value holds {content}, which JSON cannot say", remedy="write it as text, or leave it out"
        )
    if isinstance(content, Mapping):
        for each in content.values():
            _refuse_not_a_number(each)
    elif isinstance(content, list | tuple):
        for each in content:
            _refuse_not_a_number(each)
