"""Parses records of the bridge's bookkeeping topics, or says why they cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from cdc.base.errors import DecodeError

Parsed = TypeVar("Parsed")


def parse_record(what: str, topic: str, value: bytes, make: Callable[[dict[str, Any]], Parsed]) -> Parsed:
    """Parse a JSON object with ``"v": 1``.

    Args:
        what: the kind of record, for people.
        topic: the kind of topic, for people.
        value: the record's value.
        make: makes the result from the object's other members; its errors for unknown members become a DecodeError.

    Raises:
        DecodeError: the value is not such a record of version 1.
    """
    try:
        fields = orjson.loads(value)
        if fields.pop("v") != 1:
            raise ValueError("version")
        return make(fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise not_of_contract(what, topic, value) from error


def not_of_contract(what: str, topic: str, value: bytes) -> DecodeError:
    """The error for a record that cannot be parsed."""
    return DecodeError(
        f"{what} record is not of topic contract version 1: {value[:200]!r}",
        remedy=f"find out who wrote into the {topic} topic: another program, or a newer version of cdc",
    )
