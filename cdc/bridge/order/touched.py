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

A sweep reads the topic, in which no snapshot helps: while it goes on nothing is forgotten. So a recording is bounded by
the distinct keys that are touched meanwhile, at 120 to 175 bytes each with their dictionary (measured on CPython 3.11).

Pure: no Kafka, no database, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cdc.contract.snapshot import Snapshot


class Recording:
    """Keys of one topic that streamed transactions touched since this began; it belongs to who began it.

    Args:
        topic: a state topic.
        unseen: transactions streamed until now that a snapshot may not see: what they touched was not recorded, so no
            snapshot is good enough that does not see them.
    """

    __slots__ = ("guard", "keys", "topic", "truncated")

    def __init__(self, topic: str, unseen: Iterable[int]) -> None:
        self.topic = topic
        self.keys: dict[bytes, int] = {}
        """Key → 64-bit id of the transaction that touched it last. The order engine writes here."""
        self.truncated: list[int] = []
        self.guard = frozenset(unseen)
        """Transactions that a snapshot must see, or it has to be taken again."""

    def is_emptied(self, snapshot: Snapshot) -> bool:
        """Whether a TRUNCATE that the snapshot does not see was streamed: it touched every key."""
        return not all(map(snapshot.sees, self.truncated))

    def prune(self, snapshots: Collection[Snapshot]) -> None:
        """Forget what every one of these snapshots, and so every later one, sees."""
        if snapshots:
            kept = {key: xid for key, xid in self.keys.items() if not all(each.sees(xid) for each in snapshots)}
            self.keys.clear()
            self.keys.update(kept)


class TouchedKeys:
    """All recordings that go on: a table may be backfilled and repaired at once, and each began at its own time."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[dict[bytes, int], ...]] = {}
        """By watched topic: where the order engine writes."""
        self._recordings: list[Recording] = []

    def watch(self, topic: str, unseen: Iterable[int]) -> Recording:
        """Begin to record; arguments as for ``Recording``."""
        recording = Recording(topic, unseen)
        self._recordings.append(recording)
        self._route(topic)
        return recording

    def forget(self, recording: Recording) -> None:
        """End recording, unless it has ended."""
        self._recordings = [each for each in self._recordings if each is not recording]
        self._route(recording.topic)

    def emptied(self, topic: str, xid: int) -> None:
        """A TRUNCATE of the topic's table was streamed."""
        for recording in self._recordings:
            if recording.topic == topic:
                recording.truncated.append(xid)

    def _route(self, topic: str) -> None:
        keys = tuple(each.keys for each in self._recordings if each.topic == topic)
        if keys:
            self.keys[topic] = keys
        else:
            self.keys.pop(topic, None)
