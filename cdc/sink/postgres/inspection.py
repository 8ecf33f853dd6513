"""What ``cdc check`` learns about a replica, as plain values."""

from __future__ import annotations

from typing import NamedTuple

from cdc.sink.postgres.grants import Lack


class Inspection(NamedTuple):
    """A replica database before a sink writes to it.

    Attributes:
        address: ``user@host:port/database``, for messages.
        schemas: the schemas that were checked: those of the replica tables, and the sink's own.
        lacks: the rights that are missing.
        is_source: the replica is the source database itself.
        is_standby: the server is a standby and takes no writes.
    """

    address: str
    schemas: tuple[str, ...]
    lacks: tuple[Lack, ...]
    is_source: bool
    is_standby: bool
