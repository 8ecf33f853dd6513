from collections.abc import Callable, Sequence

from cdc.contract.formats._objects import RowWriter

class ValueWriter(RowWriter):
    def __init__(
        self, head: bytes, columns: Sequence[tuple[int, bytes, int, bool, int, Callable[[bytes], bytes]]]
    ) -> None: ...

class ValueReader:
    def __init__(
        self,
        head_bytes: int,
        columns: Sequence[tuple[bytes, bytes, int, int, bool, int, Callable[[bytes, int, int], tuple[bytes, int]]]],
    ) -> None: ...
    def json(self, value: bytes) -> bytes | None: ...
