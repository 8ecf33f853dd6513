from collections.abc import Callable, Sequence

class Buffer: ...

class RowWriter:
    width: int
    def encode(self, row: Sequence[object]) -> bytes | None: ...

class ObjectWriter(RowWriter):
    def __init__(
        self,
        names: Sequence[bytes],
        converters: Sequence[Callable[[bytes], bytes]],
        head: bytes = b"",
        tail: bytes = b"",
    ) -> None: ...
