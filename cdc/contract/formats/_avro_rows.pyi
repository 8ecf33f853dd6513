from collections.abc import Callable, Sequence

from cdc.contract.formats._objects import RowWriter

class ValueWriter(RowWriter):
    def __init__(
        self, head: bytes, columns: Sequence[tuple[int, bytes, bool, int, int, Callable[[bytes], bytes]]]
    ) -> None: ...

class ValueReader:
    def __init__(
        self,
        columns: Sequence[
            tuple[bytes, int, int | None, int | None, int, int, Callable[[bytes, int, list[bytes]], int]]
        ],
    ) -> None: ...
    def record(self, value: bytes, place: int) -> tuple[bytes, int] | None: ...
