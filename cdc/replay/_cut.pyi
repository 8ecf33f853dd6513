from collections.abc import Sequence

from cdc.lsn import LSN
from cdc.ports import StoredRecord

def climb(records: Sequence[StoredRecord], start: LSN) -> tuple[LSN, bool]: ...
