from collections.abc import Callable, Sequence
from typing import Any

from cdc.contract.formats._objects import RowWriter

class ShownRowWriter(RowWriter):
    def __init__(
        self, writer: RowWriter, width: int, cells: Sequence[tuple[int, Callable[[Any], Any] | None]]
    ) -> None: ...
