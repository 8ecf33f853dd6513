from collections.abc import Sequence

from cdc.contract.ports import StoredRecord

def split(
    bits: bytearray, salt: int, upserts: Sequence[StoredRecord]
) -> tuple[list[StoredRecord], list[StoredRecord]]: ...
