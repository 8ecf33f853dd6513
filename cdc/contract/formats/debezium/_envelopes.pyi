from collections.abc import Callable, Mapping, Sequence

from cdc.contract.formats._avro_rows import ValueReader
from cdc.contract.formats._objects import RowWriter
from cdc.contract.formats.debezium._rows import EventRowReader
from cdc.contract.record import Ready

class Envelope: ...

class JsonEnvelope(Envelope):
    def __init__(
        self,
        mark: bytes,
        rows: RowWriter,
        key: Sequence[tuple[bytes, int, int]],
        parts: tuple[bytes, bytes, bytes, bytes, bytes],
    ) -> None: ...

class AvroEnvelope(Envelope):
    def __init__(
        self,
        mark: bytes,
        rows: RowWriter,
        key: Sequence[tuple[bytes, int, int]],
        parts: tuple[bytes, bytes, bytes, bytes],
    ) -> None: ...

def take_records(
    ready: list[Ready],
    place: int,
    made: list[Ready],
    known: Mapping[bytes, Envelope],
    moved: tuple[bytes, bytes] | None,
    clock: Callable[[], int],
) -> int: ...

class JsonEnvelopeReader:
    def __init__(self, rows: EventRowReader, start: bytes, end: bytes) -> None: ...
    def json(self, value: bytes) -> bytes | None: ...

class AvroEnvelopeReader:
    def __init__(self, rows: ValueReader) -> None: ...
    def json(self, value: bytes) -> bytes | None: ...
