"""Looks at one partition as ``cdc topics inspect`` does."""

from __future__ import annotations

import time

from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.inspection import PartitionReport, TopicReport, inspect
from cdc.topics.scan import Advance
from tests.support.written_log import WrittenLog


def now_ms() -> int:
    """The clock that the tests date their records by."""
    return time.time_ns() // 1_000_000


def looked_at(bootstrap: str, topic: str, newest: int | None = None) -> TopicReport:
    """The topic's report."""

    def begin(place: PartitionPlace, steps: int) -> Advance:
        return lambda done: None

    with Cluster({"bootstrap.servers": bootstrap}) as cluster:
        places, settings = cluster.places([topic])[topic], cluster.settings([topic])[topic]
        return inspect(cluster, places, settings, now_ms=now_ms(), newest=newest, begin=begin)


def partition_of(bootstrap: str, log: WrittenLog) -> PartitionReport:
    """Of its only partition."""
    (found,) = looked_at(bootstrap, log.topic).partitions
    return found


def codes(bootstrap: str, log: WrittenLog) -> list[str]:
    """The verdicts on it, the first one first."""
    return [each.code for each in partition_of(bootstrap, log).verdicts]
