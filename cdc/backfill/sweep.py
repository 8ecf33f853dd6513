"""Finds ghosts: live keys of a topic that a complete backfill did not write anew, so the table does not have them.

A thread reads the topic partition by partition and hands the keys on in portions; memory is bounded (``live_keys``).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

from cdc.daemon.worker import Worker
from cdc.errors import CdcError
from cdc.replay.bounded import partitions_of
from cdc.replay.live_keys import stale_keys
from cdc.replay.reader import TopicReader

_PORTION_KEYS: Final = 1_000
_PORTIONS: Final = 8
_POLL_S: Final = 0.05


class _Closed(Exception):
    """The sweep was given up."""


class Sweep:
    """One topic's ghosts, as far as they are committed when this is made.

    Args:
        options: librdkafka settings from the configuration.
        topic: a state topic.
        below: by partition: where its end was before the backfill's first chunk.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, below: Sequence[int]) -> None:
        self._options = options
        self._topic = topic
        self._below = below
        self._found: queue.Queue[list[bytes] | CdcError | None] = queue.Queue(_PORTIONS)
        self._stop = threading.Event()
        self._worker = Worker(self._work, name=f"sweep {topic}")
        self._worker.start()

    def take(self) -> list[bytes] | None:
        """Some keys, maybe none at the moment; None when all were told.

        Raises:
            CdcError: reading the topic failed.
        """
        self._worker.check()
        try:
            found = self._found.get_nowait()
        except queue.Empty:
            return []
        if isinstance(found, CdcError):
            raise found
        return found

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._worker.join()

    def _work(self) -> None:
        try:
            self._put_all()
            self._put(None)
        except CdcError as error:
            self._put(error)
        except _Closed:
            pass

    def _put_all(self) -> None:
        partitions = partitions_of(self._options, self._topic)
        with closing(TopicReader(self._options)) as reader:
            ends = reader.high_watermarks(partitions)
        for partition, below in zip(partitions, self._below, strict=True):
            keys = stale_keys(self._options, partition, below, ends[partition], before_poll=self._check)
            while portion := list(islice(keys, _PORTION_KEYS)):
                self._put(portion)

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Closed

    def _put(self, found: list[bytes] | CdcError | None) -> None:
        while not self._stop.is_set():
            try:
                self._found.put(found, timeout=_POLL_S)
                return
            except queue.Full:
                continue
