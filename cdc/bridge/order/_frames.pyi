from collections.abc import Set
from typing import Any

from cdc.bridge.order.counts import TableCounts
from cdc.contract.change import Relation
from cdc.contract.formats._objects import RowWriter
from cdc.contract.header import HeaderStamp
from cdc.contract.record import Ready

class PlainTable:
    def __init__(
        self,
        topic: str,
        fingerprint: str,
        writers: tuple[RowWriter, RowWriter],
        key_places: tuple[int, ...],
        most_bytes: int,
        counts: TableCounts,
        has_envelope: bool,
    ) -> None: ...

def take_rows(
    frames: list[bytes],
    place: int,
    relations: dict[int, Relation],
    tables: dict[Relation, Any],
    ready: list[Ready],
    seq: int,
    transaction: tuple[HeaderStamp, int, dict[str, tuple[dict[bytes, int], ...]], Set[str]],
) -> tuple[int, int]: ...
