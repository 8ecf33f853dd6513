from collections.abc import Sequence

from cdc.base.lsn import LSN
from cdc.contract.ports import StoredRecord

def climb(records: Sequence[StoredRecord], start: LSN) -> tuple[LSN, bool]: ...
