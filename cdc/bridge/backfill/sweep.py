"""Finds ghosts: live keys that a complete backfill did not write again, so the table does not have them.

A thread reads the topic partition by partition, and hands the keys on in portions. Memory is bounded (``live_keys``).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError
from cdc.contract.partition import partition_of
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import topic_ends
from cdc.kafka.replay.live_keys import stale_keys, unwritten_keys

_PORTION_KEYS: Final = 1_000
_PORTIONS: Final = 8
_POLL_S: Final = 0.05


class _SweepGivenUp(Exception):
    """Ends the thread, because the sweep was closed."""


class Sweep:
    """One topic's ghosts, up to what is committed when this object is made.

    Args:
        admin: asks the brokers, and has the settings for readers.
        topic: a state topic.
        below: the end of each partition before the backfill's first chunk.
        aside: keys in quarantine, which the topic holds no row for. Those that the backfill did not put there again are
            ghosts as well.
    """

    def __init__(self, admin: BrokerAdmin, topic: str, below: Sequence[int], aside: Iterable[bytes] = ()) -> None:
        self._admin = admin
        self._topic = topic
        self._below = below
        self._aside: list[list[bytes]] = [[] for _ in below]
        for key in aside:
            self._aside[partition_of(key, len(below))].append(key)
        self._found: queue.Queue[list[bytes] | CdcError | None] = queue.Queue(_PORTIONS)
        self._stop = threading.Event()
        self._worker = Worker(self._work, name=f"sweep {topic}")
        self._worker.start()

    def take(self) -> list[bytes] | None:
        """Returns some keys, maybe none at the moment; None after the last one.

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
        except _SweepGivenUp:
            pass

    def _put_all(self) -> None:
        ends = topic_ends(self._admin, self._topic)
        for (partition, end), below in zip(ends.items(), self._below, strict=True):
            keys = stale_keys(self._admin, partition, below, end, before_poll=self._check)
            while portion := list(islice(keys, _PORTION_KEYS)):
                self._put(portion)
            aside = self._aside[partition[1]]
            if aside := unwritten_keys(self._admin, partition, below, end, aside, before_poll=self._check):
                self._put(aside)

    def _check(self) -> None:
        if self._stop.is_set():
            raise _SweepGivenUp

    def _put(self, found: list[bytes] | CdcError | None) -> None:
        while not self._stop.is_set():
            try:
                self._found.put(found, timeout=_POLL_S)
                return
            except queue.Full:
                continue
