from collections.abc import Iterable, Sequence
from typing import Final

INTEGER: Final[int]
BARE: Final[int]
STRING: Final[int]
DOCUMENT: Final[int]
STRINGS: Final[int]
NUMBERS: Final[int]
OTHER: Final[int]
LEFT_OUT: Final[int]

class LineWriter:
    def __init__(self, names: Sequence[bytes], forms: Sequence[int]) -> None: ...
    def lines(self, sources: Iterable[object], are_keys: bool) -> tuple[bytes, list[int]]: ...
