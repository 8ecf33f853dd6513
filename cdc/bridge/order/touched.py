"""Knows which rows of a chunk the stream has brought already, the same or newer: the heart of the backfill.

Theory of operation. A chunk's row is the row as its snapshot saw it. It is published once the stream is published up to
H, the end of the WAL when the snapshot was taken, so whatever the snapshot sees is in the topic by then. If the stream
touched a key since recording began, the topic has its newest version. The chunk's row is that version or an older one,
and is dropped. Every other key was touched last by a transaction that was streamed before recording began.

If the snapshot sees all of those transactions, the chunk's row is the newest. But a commit is in the WAL, and may be
streamed, before it is visible to snapshots (long before, while a synchronous standby is awaited). So LSNs cannot tell.
Therefore the bridge remembers the ids of published transactions that snapshots may not see yet. A chunk whose snapshot
does not see one of them (the guard) is read again.

A recorded key is forgotten when every snapshot under way, and so every later one, sees who touched it last. A
transaction can touch a row again only when the earlier one is over, so a snapshot that sees the later one sees the
earlier one, too. What a chunk has of such a key is published once more, which changes nothing.

A sweep reads the topic, where no snapshot helps, so nothing is forgotten while it goes on. A recording is bounded by
the distinct keys that are touched meanwhile, at 120 to 175 bytes each with their dictionary (measured on CPython 3.11).

Pure: no Kafka, no database, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cdc.contract.snapshot import Snapshot


class Recording:
    """The keys of one topic that streamed transactions have touched since the recording began. One user owns it.

    Args:
        topic: a state topic.
        unseen: transactions that were streamed before, and that a snapshot may not see. What they touched was not
            recorded, so a snapshot that does not see them is of no use.
    """

    __slots__ = ("guard", "keys", "topic", "truncated")

    def __init__(self, topic: str, unseen: Iterable[int]) -> None:
        self.topic = topic
        self.keys: dict[bytes, int] = {}
        """Maps a key to the 64-bit id of the transaction that touched it last. The order engine writes here."""
        self.truncated: list[int] = []
        self.guard = frozenset(unseen)
        """Transactions that a snapshot must see; otherwise it has to be taken again."""

    def is_emptied(self, snapshot: Snapshot) -> bool:
        """Whether a TRUNCATE, which touches every key, was streamed and the snapshot does not see it."""
        return not all(map(snapshot.sees, self.truncated))

    def prune(self, snapshots: Collection[Snapshot]) -> None:
        """Forget keys whose last transaction all of these snapshots see, because every later snapshot sees it, too."""
        if snapshots:
            kept = {key: xid for key, xid in self.keys.items() if not all(each.sees(xid) for each in snapshots)}
            self.keys.clear()
            self.keys.update(kept)


class TouchedKeys:
    """All recordings in progress. A table may be backfilled and repaired at once, each with its own beginning."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[dict[bytes, int], ...]] = {}
        """The dictionaries that the order engine writes to, by watched topic."""
        self._recordings: list[Recording] = []

    def watch(self, topic: str, unseen: Iterable[int]) -> Recording:
        """Begin to record; the arguments are those of ``Recording``."""
        recording = Recording(topic, unseen)
        self._recordings.append(recording)
        self._route(topic)
        return recording

    def forget(self, recording: Recording) -> None:
        """End a recording, unless it has ended."""
        self._recordings = [each for each in self._recordings if each is not recording]
        self._route(recording.topic)

    def emptied(self, topic: str, xid: int) -> None:
        """Note that a TRUNCATE of the topic's table was streamed."""
        for recording in self._recordings:
            if recording.topic == topic:
                recording.truncated.append(xid)

    def _route(self, topic: str) -> None:
        keys = tuple(each.keys for each in self._recordings if each.topic == topic)
        if keys:
            self.keys[topic] = keys
        else:
            self.keys.pop(topic, None)
