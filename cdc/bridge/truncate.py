"""Writes a tombstone for every live key of a topic: for TRUNCATE, or before a table begins anew.

The topic itself tells which keys live, which takes minutes if it is large. Meanwhile the server wants signs of life,
and Kafka aborts a transaction that stays open for a minute. So this commits several times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cdc.base.crashpoints import reach
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.replay.live_keys import live_keys

_ROWS_PER_COMMIT = 50_000
_MAX_AGE_S = 5.0


class _Stopped(Exception):
    """Ends the loop over the keys, because the bridge stops."""


def publish_tombstones(
    admin: BrokerAdmin,
    topic: str,
    header: bytes,
    *,
    publisher: KafkaPublisher,
    commit: Callable[[], None],
    sign_of_life: Callable[[], None],
    is_stopped: Callable[[], bool],
) -> int | None:
    """Delete every key that the topic holds a row for.

    Args:
        admin: asks the brokers, and has the settings for readers.
        topic: a state topic; the open Kafka transaction must hold nothing uncommitted of it.
        header: the header of every tombstone.
        publisher: takes the tombstones.
        commit: commits the Kafka transaction with a progress that does not cover what the tombstones are for.
        sign_of_life: called several times a second.
        is_stopped: asked as often. When it says so, the work is given up, and must be done again from its beginning.

    Returns:
        How many tombstones were written, the last ones not committed yet; None when stopped before the end.
    """
    count = 0
    committed_at = time.monotonic()

    def commit_some() -> None:
        nonlocal committed_at
        commit()
        committed_at = time.monotonic()
        reach("bridge.inside_truncate")

    def before_poll() -> None:
        sign_of_life()
        if is_stopped():
            raise _Stopped
        if publisher.is_open and time.monotonic() - committed_at > _MAX_AGE_S:
            commit_some()

    try:
        for key in live_keys(admin, topic, before_poll=before_poll):
            publisher.produce(topic, key, None, header)
            count += 1
            if count % _ROWS_PER_COMMIT == 0:
                commit_some()
                sign_of_life()
    except _Stopped:
        return None
    return count
