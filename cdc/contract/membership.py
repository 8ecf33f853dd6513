"""Keys and values of ``{name}.__progress`` that tell what carries a table in the publication.

A table that was out of the publication for a moment looks as before when it is back, but what carries it is not the
same: PostgreSQL numbers each membership anew.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from cdc.contract.parsing import parse_record

_PREFIX: Final = b'{"published":'


@dataclass(frozen=True, slots=True)
class Membership:
    """What carries a table, as the bridge saw it last.

    Attributes:
        publication: its oid, new with every publication of the same name.
        version: which transaction wrote the publication's row: new with every change of its options or its owner.
        owner: oid of its owner.
        table: oid of the table.
        routes: each entry of the publication that reaches the table; one that is taken out and put in again, or gets
            another row filter or column list, is another entry.
    """

    publication: int
    version: str
    owner: int
    table: int
    routes: tuple[str, ...]


def membership_key(table: str) -> bytes:
    """The key under which a table, ``schema.table``, stands."""
    return orjson.dumps({"published": table})


def member_table(key: bytes | None) -> str | None:
    """The table that a key of the progress topic stands for; None for keys of another kind."""
    if key is None or not key.startswith(_PREFIX):
        return None
    return str(orjson.loads(key)["published"])


def membership_value(membership: Membership) -> bytes:
    """The record's value, one JSON object with the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(membership)})


def parse_membership(value: bytes) -> Membership:
    """Read a membership back.

    Raises:
        DecodeError: not such a record of version 1.
    """
    return parse_record("published", "progress", value, _membership)


def _membership(fields: dict[str, Any]) -> Membership:
    numbers = [fields[name] for name in ("publication", "owner", "table")]
    if not all(type(number) is int for number in numbers):
        raise TypeError(f"not oids: {numbers!r}")
    if type(fields["version"]) is not str or not all(type(route) is str for route in fields["routes"]):
        raise TypeError("version or routes")
    publication, owner, table = numbers
    return Membership(publication, fields["version"], owner, table, tuple(fields["routes"]))
