"""Keys and values of the records in ``{name}.__progress`` that say which publication entries carry a table.

A table that was out of the publication for a moment looks the same when it is back. But the entries that carry it are
others: PostgreSQL gives each membership a new oid.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from cdc.contract.parsing import as_attributes, named, parse_record


@dataclass(frozen=True, slots=True)
class Membership:
    """The publication entries that carry a table, as the bridge last saw them.

    Attributes:
        publication: the publication's oid; a recreated publication has another one.
        version: the transaction that wrote the publication's row; it changes with the options, the owner or the name.
        owner: the oid of the publication's owner.
        table: the table's oid.
        routes: the publication's entries that reach the table. An entry that is removed and added again, or gets
            another row filter or column list, counts as another entry.
    """

    publication: int
    version: str
    owner: int
    table: int
    routes: tuple[str, ...]


def membership_key(table: str) -> bytes:
    """The key of the record of a table, ``schema.table``."""
    return orjson.dumps({"published": table})


def member_table(key: bytes | None) -> str | None:
    """Returns the table that a key of the progress topic names; None for keys of another kind."""
    return named("published", key)


def membership_value(membership: Membership) -> bytes:
    """The record's value: one JSON object, whose members have the attributes' names."""
    return orjson.dumps({"v": 1, **asdict(membership)})


def parse_membership(value: bytes) -> Membership:
    """Parse the value of a membership record.

    Raises:
        DecodeError: not a membership record of version 1.
    """
    return parse_record("published", "progress", value, as_attributes(Membership))
