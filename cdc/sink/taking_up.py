"""How a session takes up a replica table: reads its topic on, reads it anew, or leaves the table alone. Pure.

Each database finds out the facts in its own way. What follows from them is the same for all.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.sink.rejections import TableRefused, key_text
from cdc.sink.replica import ReplicaName

INTERRUPTED: Final = "it was being rebuilt when it was stopped"
_ASKED: Final = "the operator asked for it"
DROPPED: Final = "the replica table was gone"
STRIPPED: Final = "a column of the replica table was gone"
_FORGOTTEN: Final = "what the sink had recorded of the table was gone"

NO_CULPRIT: Final = {"stopped_key": None, "stopped_partition": None, "stopped_offset": None}
"""The columns of ``mirrored_table`` that name the record at fault, when there is none."""


class FoundTable(NamedTuple):
    """What a session finds of a replica table when it takes it up.

    Attributes:
        resumes: offsets of its topic are stored.
        is_created: this session created it.
        is_stripped: this session added columns that it had before.
        is_recorded: the sink has a record of it.
        is_rebuilt: a rebuild of it is on record.
        holds_rows: it has at least one row.
        reason: the recorded reason of its state.
        why_empty: why it lost its rows, if it did; asked only for a table without rows.
    """

    resumes: bool
    is_created: bool
    is_stripped: bool
    is_recorded: bool
    is_rebuilt: bool
    holds_rows: bool
    reason: str | None
    why_empty: str = ""

    @property
    def has_foreign_rows(self) -> bool:
        """Whether nothing tells where its rows come from, so that no record of the topic may ever delete them."""
        return not self.resumes and not self.is_rebuilt and self.holds_rows

    def why_anew(self, told: str, *, is_asked: bool) -> str:
        """Returns why its topic must be read from the first offset again; empty if it need not be.

        Args:
            told: why the topic's stored offsets cannot be used; empty if they can.
            is_asked: whether the operator wants it.
        """
        if is_asked:
            return _ASKED
        if not self.resumes:
            return self.reason or INTERRUPTED if self.is_rebuilt else told
        if self.is_created:
            return DROPPED
        if self.is_stripped:
            return STRIPPED
        if told:
            return told
        if not self.is_recorded:
            return _FORGOTTEN
        return "" if self.holds_rows else self.why_empty


def is_stripped(last: str, schemas: Sequence[TableSchema], added: Collection[str]) -> bool:
    """Returns whether columns that were added now had been there before: what is new now must be new in the source.

    Args:
        last: the fingerprint of the definition by which the table was established before.
        schemas: every definition of its topic, the newest last.
        added: the columns that were added now.
    """
    fingerprints = [each.fingerprint for each in schemas]
    if last not in fingerprints:
        return False
    before = schemas[: fingerprints.index(last) + 1]
    return not {column.name for each in before for column in each.columns}.isdisjoint(added)


def culprit(record: StoredRecord) -> dict[str, Any]:
    """Returns the columns of ``mirrored_table`` that name the record at fault."""
    key = None if record.key is None else key_text(record.key)
    return {"stopped_key": key, "stopped_partition": record.partition, "stopped_offset": record.offset}


def foreign_rows(name: ReplicaName, schema: TableSchema) -> TableRefused:
    """Returns the refusal of a table with foreign rows: no record of the topic may ever delete them."""
    return TableRefused(
        f"replica table {name} holds rows that this sink did not write",
        remedy=f"cdc sink --rebuild {shlex.quote(schema.qualified_name)}  # takes the table over: rows that the topic "
        "has are overwritten, all others deleted; or empty the table and restart the sink",
    )
