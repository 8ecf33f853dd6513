"""Parses records of the bridge's bookkeeping topics, or says why they cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import orjson

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN

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
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # of msgspec and orjson: ValueError
        raise not_of_contract(what, topic, value) from error


def parse_name(what: str, topic: str, member: str, key: bytes) -> str:
    """Parse a key that names something, ``{"member":"name"}``; other arguments as for ``parse_record``.

    Raises:
        DecodeError: the key has not this form.
    """
    try:
        name = orjson.loads(key)[member]
    except (KeyError, TypeError, ValueError) as error:
        raise not_of_contract(what, topic, key) from error
    if type(name) is not str:
        raise not_of_contract(what, topic, key)
    return name


def as_attributes(kind: type[Parsed]) -> Callable[[dict[str, Any]], Parsed]:
    """Returns a ``make`` for ``parse_record``: members are named as the dataclass's attributes, and have their types.

    Anybody who may write to the topic chose the values. An attribute that the record lacks takes its default, and
    members without an attribute are left out. An LSN is a text, and bytes are in base64.
    """
    return lambda fields: msgspec.convert(fields, kind, dec_hook=_lsn)


def integer(value: Any) -> int:
    """Returns a member that must be an integer, not a float, text or boolean that could become one."""
    if type(value) is not int:
        raise TypeError(f"not an integer: {value!r}")
    return value


def text(value: Any) -> str:
    """Returns a member that must be a string."""
    if type(value) is not str:
        raise TypeError(f"not a string: {value!r}")
    return value


def _lsn(kind: type[Any], value: object) -> object:
    if kind is not LSN or type(value) is not str:
        raise TypeError(f"not an LSN: {value!r}")
    return LSN.parse(value)


def not_of_contract(what: str, topic: str, value: bytes) -> DecodeError:
    """The error for a record that cannot be parsed."""
    return DecodeError(
        f"{what} record is not of topic contract version 1: {value[:200]!r}",
        remedy=f"find out who wrote into the {topic} topic: another program, or a newer version of cdc",
    )
