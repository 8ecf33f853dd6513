"""Parses records of the bridge's bookkeeping topics, or says why they cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
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
        members = orjson.loads(value)
        if members.pop("v") != 1:
            raise ValueError("version")
        return make(members)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # of msgspec and orjson: ValueError
        raise not_of_contract(what, topic, value) from error


def named(member: str, key: bytes | None) -> str | None:
    """Returns the name in a key ``{"member":"name"}``; None for keys of another kind, and for no key."""
    if key is None or not key.startswith(b'{"%b":' % member.encode()):
        return None
    try:
        name = orjson.loads(key)[member]
    except orjson.JSONDecodeError:
        return None  # another program's: it must not stop whoever reads the topic
    return name if type(name) is str else None


def as_attributes(kind: type[Parsed]) -> Callable[[dict[str, Any]], Parsed]:
    """Returns a ``make`` for ``parse_record``: members are named as the dataclass's attributes, and have their types.

    Anybody who may write to the topic chose the values. An attribute that the record lacks takes its default. An LSN is
    a text, and bytes are in base64.
    """
    return lambda members: msgspec.convert(members, kind, dec_hook=_lsn)


def only_attributes(kind: type[Parsed]) -> Callable[[dict[str, Any]], Parsed]:
    """Returns the same, which also refuses members without an attribute.

    An option of a newer version that is left out would make a request mean something else.
    """

    def make(members: dict[str, Any]) -> Parsed:
        if unknown := members.keys() - {each.name for each in fields(kind)}:  # type: ignore[arg-type]  # a dataclass
            raise TypeError(f"unknown members: {', '.join(sorted(unknown))}")
        return as_attributes(kind)(members)

    return make


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
