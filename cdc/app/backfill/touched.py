"""Which rows of a chunk are older than what the stream already published: the heart of the backfill.

Theory of operation. A chunk's row is the row as its snapshot saw it. Once the stream has published everything before H
(the end of the WAL when the snapshot was taken), whatever the snapshot sees is published. So a row of the chunk is
still the newest version of its key, unless a transaction that the snapshot does *not* see was streamed meanwhile and
touched that key. Those are dropped; their newer version is in the topic already, or a tombstone.

LSNs alone would not do: a commit is in the WAL, and may be streamed, before it is visible to snapshots (for long while
a synchronous standby is awaited). Therefore transaction ids are compared with the snapshot.

Who touched a key *last* in the stream's order decides for all before him: a transaction can only touch a row again when
the earlier one is over and visible, so a snapshot that sees the later one sees the earlier one.

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
