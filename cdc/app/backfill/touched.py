"""Which rows of a chunk the stream has brought already, newer or the same: the heart of the backfill.

Theory of operation. A chunk's row is the row as its snapshot saw it. It is published once the stream is published up to
H, the end of the WAL when the snapshot was taken, so whatever the snapshot sees is in the topic by then. A key that the
stream touched since recording began has its newest version in the topic, the chunk's row being that or an older one: it
is dropped. Every other key was touched last by a transaction that was streamed before recording began.

If the snapshot sees all of those, the chunk's row is the newest. But a commit is in the WAL, and may be streamed,
before it is visible to snapshots (for long while a synchronous standby is awaited), so LSNs cannot tell. Therefore the
bridge remembers the ids of the transactions that it published and that snapshots may not see yet; a chunk whose
snapshot does not see one of them (the guard) is read again.

Recorded keys are forgotten when every snapshot under way, and so every later one, sees who touched them last: a
transaction can only touch a row again when the earlier one is over, so who sees the later one sees the earlier one.
What a chunk has of such a key is then published once more, which changes nothing.

Pure: no Kafka, no database, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cdc.capture.reread import Snapshot


class TouchedKeys:
    """Keys that streamed transactions touched, by topic, while a backfill of that topic is under way."""

    def __init__(self) -> None:
        self.keys: dict[str, dict[bytes, int]] = {}
        """By watched topic: key → 64-bit id of the transaction that touched it last. The translator writes here."""
        self.truncated: dict[str, list[int]] = {}
        self._guards: dict[str, frozenset[int]] = {}

    def watch(self, topic: str, unseen: Iterable[int]) -> None:
        """Begin to record, or begin anew.

        Args:
            topic: a state topic.
            unseen: transactions streamed until now that a snapshot may not see: what they touched was not recorded, so
                no snapshot is good enough that does not see them.
        """
        self.keys[topic] = {}
        self.truncated[topic] = []
        self._guards[topic] = frozenset(unseen)

    def forget(self, topic: str) -> None:
        """End recording."""
        self.keys.pop(topic, None)
        self.truncated.pop(topic, None)
        self._guards.pop(topic, None)

    def guard(self, topic: str) -> frozenset[int]:
        """Transactions that a chunk's snapshot must see, or it has to be taken again."""
        return self._guards[topic]

    def is_emptied(self, topic: str, snapshot: Snapshot) -> bool:
        """Whether a TRUNCATE that the snapshot does not see was streamed: it touched every key."""
        return not all(map(snapshot.sees, self.truncated[topic]))

    def prune(self, topic: str, snapshots: Collection[Snapshot]) -> None:
        """Forget what every one of these snapshots, and so every later one, sees."""
        if snapshots:
            kept = {key: xid for key, xid in self.keys[topic].items() if not all(each.sees(xid) for each in snapshots)}
            self.keys[topic].clear()
            self.keys[topic].update(kept)
