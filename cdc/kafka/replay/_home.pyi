from collections.abc import Mapping, Sequence

from cdc.contract.ports import StoredRecord

def sift(
    records: Sequence[StoredRecord], counts: Mapping[str, int]
) -> tuple[list[StoredRecord], list[StoredRecord]]: ...
