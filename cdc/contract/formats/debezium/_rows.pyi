from collections.abc import Callable, Sequence

from cdc.contract.formats._objects import ObjectWriter

class EventRowWriter(ObjectWriter):
    def __init__(
        self,
        names: Sequence[bytes],
        converters: Sequence[Callable[[bytes], bytes]],
        forms: Sequence[tuple[int, int]],
    ) -> None: ...

class EventRowReader:
    def __init__(self, columns: Sequence[tuple[bytes, int, int, Callable[[bytes], bytes] | None]]) -> None: ...
    def json(self, row: bytes) -> bytes | None: ...
