"""What ``cdc check`` wants to know of a replica, as plain values."""

from __future__ import annotations

from typing import NamedTuple

from cdc.sink.postgres.grants import Lack


class Inspection(NamedTuple):
    """A replica database before a sink writes to it.

    Attributes:
        address: ``user@host:port/database``, for people.
        schemas: that were looked at: those of replica tables, and the sink's own.
        lacks: rights that are missing.
        is_source: it is the source database itself.
        is_standby: it takes no writes.
    """

    address: str
    schemas: tuple[str, ...]
    lacks: tuple[Lack, ...]
    is_source: bool
    is_standby: bool
