"""Turns portions of chunks into records, and ghosts into tombstones: what the backfill adds to the topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from cdc.base.crashpoints import reach
from cdc.base.lsn import LSN
from cdc.bridge.backfill.lines import LineEncoder
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Surroundings
from cdc.bridge.backfill.table import TableBackfill
from cdc.bridge.capture.chunk import ChunkView
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation
from cdc.contract.header import DELETE, HeaderStamp

_MAX_ENCODERS: Final = 32
"""Portions come from as many chunks in turn as there are readers, of which there are at most 16."""


class Ordinals(dict[str, int]):
    """The last ordinal that a topic's backfilled records were given, by topic.

    On an idle database, all records beside the stream share one LSN. So whoever publishes them goes on counting, and
    (lsn, seq) never falls within a partition.
    """

    def __missing__(self, topic: str) -> int:
        return 0

    def next(self, topic: str) -> int:
        """Returns the ordinal of one more record of the topic, or of several that share it."""
        self[topic] += 1
        return self[topic]

    def learn(self, topic: str, seq: int) -> None:
        """Note that records up to this ordinal were written."""
        self[topic] = max(self[topic], seq)


class BackfillRowWriter:
    """Produces rows that are still the newest of their keys.

    Args:
        stream: tells where the stream is.
        ordinals: the ordinals of backfilled records.
        around: encodes rows, and takes the records.
    """

    def __init__(self, stream: StreamSide, ordinals: Ordinals, around: Surroundings) -> None:
        self._stream = stream
        self._ordinals = ordinals
        self._around = around
        self._encoders: dict[Relation, tuple[TableInfo, LineEncoder]] = {}
        self._ghosts = ("", "")

    def is_ready(self, relation: Relation) -> bool:
        """Whether rows of this relation can be encoded now: not until the stream has come to its new key."""
        return self._encoder_of(relation) is not None

    def publish(self, backfill: TableBackfill, lines: list[bytes], view: ChunkView) -> int:
        """Produce the rows of a portion that the stream did not bring itself.

        Args:
            backfill: the backfill that the rows belong to.
            lines: the rows, in COPY's text format.
            view: the transaction that they were read in.

        Returns:
            The total size of the values in bytes.
        """
        topic = backfill.topic
        if not lines or backfill.recording.is_emptied(view.snapshot):
            return 0
        encoder = self._encoder_of(view.relation)
        assert encoder is not None
        before = self._ordinals[topic]
        records, size = encoder.encode(lines, backfill.recording, self._stamp(view.snapshot_text), before)
        if records:
            self._around.produce_all(records)
        self._ordinals[topic] = before + len(records)
        backfill.published(len(records), before + len(records))
        return size

    def describe_ghosts(self, relation: Relation, snapshot_text: str) -> None:
        """Set the definition and the snapshot that the following tombstones are written with."""
        encoder = self._encoder_of(relation)
        self._ghosts = ("0" * 16 if encoder is None else encoder.table.fingerprint, snapshot_text)

    def publish_ghosts(self, backfill: TableBackfill, keys: Sequence[bytes]) -> int:
        """Produce tombstones for the keys that the stream did not touch since the sweep began.

        Returns:
            The total size of the keys in bytes.
        """
        touched = backfill.recording.keys
        ghosts = [key for key in keys if key not in touched]
        if not ghosts:
            return 0
        fingerprint, snapshot_text = self._ghosts
        stamp = self._stamp(snapshot_text)
        before = self._ordinals[backfill.topic]
        self._ordinals[backfill.topic] = before + len(ghosts)
        for seq, key in enumerate(ghosts, before + 1):
            self._around.produce(backfill.topic, key, None, stamp.header(DELETE, seq, fingerprint))
        backfill.swept(len(ghosts), before + len(ghosts))
        reach("backfill.inside_sweep")
        return sum(map(len, ghosts))

    def next_ordinal(self, topic: str) -> int:
        """Returns the ordinal of one more record at the position of backfilled rows, or of several that share it."""
        return self._ordinals.next(topic)

    def _stamp(self, snapshot_text: str) -> HeaderStamp:
        return HeaderStamp(LSN(self._stream.settled_lsn - 1), None, time.time_ns() // 1_000, snapshot_text)

    def _encoder_of(self, relation: Relation) -> LineEncoder | None:
        """Returns the encoder of a chunk's rows; made once for each chunk, because it takes a query of the catalog.

        Each chunk has a relation of its own. The next chunk may find that the table was altered, has another key or
        left the scope, so it asks again. So do the chunk's other portions once the stream has described the table anew.
        """
        info, _ = self._around.tables().get(relation.qualified_name, (None, ""))
        known = self._encoders.get(relation)
        if info is not None and known is not None and known[0] is info:
            return known[1]
        self._encoders.pop(relation, None)
        table = self._around.encoder(relation)
        if table is None:
            return None
        encoder = LineEncoder(table)
        if info is not None:
            if len(self._encoders) >= _MAX_ENCODERS:
                del self._encoders[next(iter(self._encoders))]
            self._encoders[relation] = (info, encoder)
        return encoder
