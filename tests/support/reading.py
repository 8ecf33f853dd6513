"""Topics as tests look at them: folded in memory, and the backfills that the progress topic tells of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.contract.record import BackfillProgress
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.backfills import read_published
from cdc.kafka.replay.bounded import read_topic
from cdc.kafka.replay.fold import Folded, fold


def fold_topic(options: Mapping[str, Any], topic: str) -> dict[bytes, Folded]:
    """The whole topic up to its end now."""
    return fold(read_topic(BrokerAdmin(options), topic))


def read_backfills(options: Mapping[str, Any], topic: str) -> dict[str, BackfillProgress]:
    """How far each table's backfill is, by ``namespace.table``."""
    return {table: each.progress for table, each in read_published(BrokerAdmin(options), topic, b"").backfills.items()}
