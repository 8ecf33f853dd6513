"""Records of the topics that the bridge keeps beside the state topics: read back, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from cdc.base.errors import DecodeError

Parsed = TypeVar("Parsed")


def parse_record(what: str, topic: str, value: bytes, make: Callable[[dict[str, Any]], Parsed]) -> Parsed:
    """Read a JSON object with ``"v": 1`` back.

    Args:
        what: the kind of record, for people.
        topic: the kind of topic, for people.
        value: the record's value.
        make: from the object's other members; what it raises for members that it does not know is refused here.

    Raises:
        DecodeError: not one of version 1.
    """
    try:
        fields = orjson.loads(value)
        if fields.pop("v") != 1:
            raise ValueError("version")
        return make(fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise not_of_contract(what, topic, value) from error


def not_of_contract(what: str, topic: str, value: bytes) -> DecodeError:
    """The refusal of a record."""
    return DecodeError(
        f"{what} record is not of topic contract version 1: {value[:200]!r}",
        remedy=f"another program wrote into the {topic} topic, or a newer version of cdc did",
    )
