from collections.abc import Sequence

from cdc.contract.formats._objects import RowWriter
from cdc.contract.record import Ready

class LineWriter:
    def __init__(self, key: RowWriter, value: RowWriter, key_places: Sequence[int], most_bytes: int) -> None: ...
    def write(
        self,
        lines: list[bytes],
        place: int,
        touched: dict[bytes, int],
        same: tuple[str, bytes, bytes],
        seq: int,
        records: list[Ready],
    ) -> tuple[int, int]: ...
