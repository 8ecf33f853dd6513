"""The position of a table in its topic, kept with its rows, and the rule that decides which micro-batch may follow.

Theory of operation. Spark repeats a micro-batch if it does not know that the batch was done. Its checkpoint may be
lost, or may be newer than a lake that was restored from a backup. So the lake keeps, in the manifest that names the
files: the *generation* (the life of one checkpoint), the number of that generation's last batch, and the next offset of
each partition. A batch is applied only if it is the next one of the same generation, or the first one of a generation
that began at exactly these offsets. A batch whose number and records were applied already changes nothing. Any other
batch is refused. So rows and offsets always match, whatever is lost or repeated.

Kafka removes tombstones some time after they were written. So the lake also keeps when it last held everything that was
in the topic, and where the topic ended then. A mirror that comes back later has missed nothing if the topic still ends
there, or if it was away for less time than tombstones are kept.

A topic that is deleted and recreated counts from 0 again. So the lake also keeps the Kafka id of the topic that its
offsets belong to.

A key whose newest record cannot be read may stand aside. Which keys do so is part of the position. So it is in the
commit that takes the key's older row away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from cdc.spark.offsets import Extent

Offsets = Mapping[int, int]
"""The first offset that is not applied yet, by partition."""

_KEY_BYTES: Final = 60
_REASON_CHARS: Final = 120


class KeyAside(NamedTuple):
    """A key without a row, because its newest record cannot be read. It ends with the key's next record.

    What it keeps is short: it is in each commit of its table, and an Iceberg table writes all of these again and again.

    Attributes:
        partition, offset: the place of the record.
        digest: tells the key, however long it is.
        key: how the key begins, for people.
        reason: why the record cannot be read.
    """

    partition: int
    offset: int
    digest: str
    key: str
    reason: str

    @staticmethod
    def of(key: bytes | None, partition: int, offset: int, reason: str) -> KeyAside:
        """Returns what to keep of a record."""
        digest = "" if key is None else hashlib.sha256(key).hexdigest()
        return KeyAside(partition, offset, digest, repr((key or b"")[:_KEY_BYTES]), reason[:_REASON_CHARS])

    @property
    def identity(self) -> tuple[int, str]:
        """The partition and the key, which one record replaces."""
        return self.partition, self.digest


@dataclass(frozen=True, slots=True)
class LakePosition:
    """The position that a lake keeps for a table.

    Attributes:
        generation: the generation of the last batch.
        batch: the number of the last batch.
        offsets: the first offset of each partition that is not applied yet.
        current_ms: when the lake last held everything. The start of the copying counts, too: it needed nothing then.
        current_ends: where the topic's partitions ended then.
        topic_id: Kafka's id of the topic that the offsets belong to; empty if an older version wrote them.
        aside: the keys without a row, because their newest records cannot be read.
    """

    generation: str = ""
    batch: int = -1
    offsets: Offsets = field(default_factory=dict)
    current_ms: int = 0
    current_ends: Offsets = field(default_factory=dict)
    topic_id: str = ""
    aside: tuple[KeyAside, ...] = ()

    def after(self, batch: MicroBatch, ends: Offsets) -> LakePosition:
        """Returns the position after a batch that read up to ``ends`` (exclusive)."""
        since_ms = self.current_ms or batch.began_ms
        return replace(
            self,
            generation=batch.generation,
            batch=batch.number,
            offsets={**self.offsets, **ends},
            current_ms=since_ms,
            topic_id=batch.topic_id,
        )

    def current(self, ends: Offsets, at_ms: int) -> LakePosition:
        """Returns the position with a note that the lake held everything up to ``ends`` at that time."""
        return replace(self, current_ms=at_ms, current_ends=dict(ends))

    def putting_aside(self, came: Mapping[tuple[int, str], int], refused: Iterable[KeyAside]) -> LakePosition:
        """Returns the position after a batch with records that cannot be read.

        Args:
            came: the offset of the last record in the batch of those keys that stood aside, by identity.
            refused: the last records of keys in the batch that cannot be read.
        """
        # A record of the batch can be older than one that was put aside before: that one is in the next batch, then.
        kept = {each.identity: each for each in self.aside if came.get(each.identity, -1) < each.offset}
        for each in refused:
            kept.setdefault(each.identity, each)
        return replace(self, aside=tuple(sorted(kept.values())))

    def may_have_missed(self, ends: Offsets, now_ms: int, retention_ms: int) -> bool:
        """Tells whether a tombstone may have come and gone since the lake last held everything."""
        is_begun = bool(self.offsets)
        return is_begun and dict(ends) != dict(self.current_ends) and now_ms - self.current_ms > retention_ms

    def why_lost(self, extent: Extent) -> str | None:
        """Returns why reading on at these offsets would miss records or keep ghosts; None if it would not."""
        if not self.offsets:
            return None
        if not self.topic_id:
            return "may have been recreated since it was read (the copy does not say which topic it was made from)"
        if self.topic_id != extent.topic_id:
            return "was deleted and recreated since it was read"
        for partition, offset in sorted(self.offsets.items()):
            if partition >= len(extent.ends) or offset > extent.ends[partition]:
                return f"lost records (partition {partition} no longer reaches offset {offset})"
            if offset < extent.starts[partition]:
                return f"lost records (partition {partition} now begins at offset {extent.starts[partition]})"
        return None

    def as_fields(self) -> dict[str, Any]:
        """Returns the fields for JSON, where the names of members must be strings."""
        return {
            "generation": self.generation,
            "batch": self.batch,
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "current_ms": self.current_ms,
            "current_ends": {str(partition): offset for partition, offset in self.current_ends.items()},
            "topic_id": self.topic_id,
            **({"aside": [each._asdict() for each in self.aside]} if self.aside else {}),
        }

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> LakePosition:
        """Reads what ``as_fields`` wrote. Without ``current_ms`` it is 0, so the lake may have missed something."""
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
            tuple(KeyAside(*(each[name] for name in KeyAside._fields)) for each in fields.get("aside", ())),
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One topic's part of a micro-batch.

    Attributes:
        generation: the checkpoint that counts the batch.
        number: its number in that generation.
        began: the lake's offsets when the run began.
        began_ms: when the run began.
        topic_id: Kafka's id of the topic.
    """

    generation: str
    number: int
    began: Offsets
    began_ms: int = 0
    topic_id: str = ""


class NotItsTurn(Exception):
    """Raised when a batch does not follow from the lake's position.

    Spark's checkpoint was lost or belongs to another copy, or the lake was restored from a backup.
    """


def admits(position: LakePosition, batch: MicroBatch, ends: Offsets) -> bool:
    """Tells whether to apply the batch; False if it has been applied already.

    Args:
        position: the lake's position.
        batch: the batch that Spark offers.
        ends: the offset after the batch's last record, by partition.

    Raises:
        NotItsTurn: applying the batch would leave something out.
    """
    if position.generation == batch.generation:
        # A checkpoint that lost a part counts from 0 again: its numbers are used up, but its records are new.
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
