"""Where a table stands, kept with its rows, and whose turn a micro-batch is.

Theory of operation. Spark runs a micro-batch again when it does not know that it was done, and its checkpoint may be
lost, or be newer than a lake that came back from a backup. So the lake keeps, in the manifest that names the files of
the rows: the *generation* (one checkpoint's life), the number of the last batch of that generation, and the next offset
of each partition. A batch is taken only if it is the next one of the same generation, or the first one of a generation
that began at exactly these offsets; a batch whose number and records were taken already changes nothing; any other one
is refused. So whatever is lost or comes twice, rows and offsets stay together.

Tombstones go some time after they were written. So the lake also keeps when it last had all that the topic held, and
where the topic ended then: who comes back later has missed nothing if the topic still ends there, or if tombstones are
kept for longer than that.

A topic that is deleted and made anew counts from 0 again. So the lake also keeps whose offsets they are, by Kafka's
own id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.spark.offsets import Extent

Offsets = Mapping[int, int]
"""Partition → the first offset that is not applied yet."""


@dataclass(frozen=True, slots=True)
class LakePosition:
    """What a lake remembers of a table.

    Attributes:
        generation: of the last batch.
        batch: its number.
        offsets: behind what was applied.
        current_ms: when the lake last had everything; it had nothing, and needed nothing, when the copying began.
        current_ends: where the topic's partitions ended then.
        topic_id: of the topic that the offsets are of; empty where an older version wrote them.
    """

    generation: str = ""
    batch: int = -1
    offsets: Offsets = field(default_factory=dict)
    current_ms: int = 0
    current_ends: Offsets = field(default_factory=dict)
    topic_id: str = ""

    def after(self, batch: MicroBatch, ends: Offsets) -> LakePosition:
        """Behind a batch that read up to ``ends`` (exclusive)."""
        since_ms = self.current_ms or batch.began_ms
        offsets = {**self.offsets, **ends}
        return LakePosition(batch.generation, batch.number, offsets, since_ms, self.current_ends, batch.topic_id)

    def current(self, ends: Offsets, at_ms: int) -> LakePosition:
        """With everything that the topic held when it ended there."""
        return replace(self, current_ms=at_ms, current_ends=dict(ends))

    def may_have_missed(self, ends: Offsets, now_ms: int, retention_ms: int) -> bool:
        """Whether a tombstone may have come and gone since the lake had everything."""
        is_begun = bool(self.offsets)
        return is_begun and dict(ends) != dict(self.current_ends) and now_ms - self.current_ms > retention_ms

    def why_lost(self, extent: Extent) -> str | None:
        """Why reading on at the offsets would leave something out or keep ghosts; None when it is right."""
        if not self.offsets:
            return None
        if not self.topic_id:
            return "may have been made anew since it was read, because the copy does not say which topic that was"
        if self.topic_id != extent.topic_id:
            return "was deleted and made anew since it was read"
        for partition, offset in sorted(self.offsets.items()):
            if partition >= len(extent.ends) or offset > extent.ends[partition]:
                return f"lost records: partition {partition} does not reach to offset {offset} any more"
            if offset < extent.starts[partition]:
                return f"lost records: partition {partition} begins at offset {extent.starts[partition]} now"
        return None

    def as_fields(self) -> dict[str, Any]:
        """For JSON, whose member names are strings."""
        return {
            "generation": self.generation,
            "batch": self.batch,
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "current_ms": self.current_ms,
            "current_ends": {str(partition): offset for partition, offset in self.current_ends.items()},
            "topic_id": self.topic_id,
        }

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> LakePosition:
        """The way back. What does not say when it had everything, may have missed something."""
        offsets, ends = (
            {int(partition): offset for partition, offset in fields.get(name, {}).items()}
            for name in ("offsets", "current_ends")
        )
        return LakePosition(
            fields["generation"],
            fields["batch"],
            offsets,
            fields.get("current_ms", 0),
            ends,
            fields.get("topic_id", ""),
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of one topic.

    Attributes:
        began: the lake's offsets where its run began.
        began_ms: when.
        topic_id: whose records they are.
    """

    generation: str
    number: int
    began: Offsets
    began_ms: int = 0
    topic_id: str = ""


class NotItsTurn(Exception):
    """The lake is not where Spark's notes have it: they are lost, another's, or the lake came from a backup."""


def admits(position: LakePosition, batch: MicroBatch, ends: Offsets) -> bool:
    """Whether the batch is to be applied; False when it was already.

    Args:
        position: of the lake.
        batch: that Spark offers.
        ends: by partition the offset behind its last record.

    Raises:
        NotItsTurn: applying it would leave something out.
    """
    if position.generation == batch.generation:
        # Notes of which a part was lost count from 0 again: then the number was taken, the records were not.
        is_applied = all(end <= position.offsets.get(partition, 0) for partition, end in ends.items())
        if batch.number <= position.batch and is_applied:
            return False
        if batch.number == position.batch + 1:
            return True
    elif batch.number == 0 and dict(position.offsets) == dict(batch.began):
        return True
    raise NotItsTurn(
        f"batch {batch.number} of {batch.generation} does not follow batch {position.batch} of {position.generation}"
    )
