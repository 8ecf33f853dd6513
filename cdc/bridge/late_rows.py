"""Asks the active bridge to publish the keys of rows again that Kafka may have taken after newer rows.

With ``delivery: idempotent``, only the process that sent these rows knows which they are. So that process asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence

import structlog

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.contract.naming import progress_topic
from cdc.contract.record import RepairKey
from cdc.contract.repair import parts_of
from cdc.kafka.publish.requests import write_repair

log = structlog.get_logger("cdc.bridge")


def ask_again(config: Config, tables: Mapping[str, Sequence[str]], late: Mapping[str, Collection[bytes]]) -> None:
    """Ask for these keys. The active bridge takes the request within a second, or the next bridge when it starts.

    A repair's record is newer than any other, so it is right for readers of every kind, and for compaction.

    Args:
        config: says where to ask.
        tables: ``namespace.table`` of each topic; a topic without a table is no longer captured, and is left as it is.
        late: the keys of such rows, by topic.
    """
    rows = {topic: len(keys) for topic, keys in late.items()}
    asked = [
        part
        for topic, keys in late.items()
        for table in tables.get(topic, ())
        for part in parts_of(uuid.uuid4().hex, table, map(RepairKey, keys))
    ]
    if not asked:
        return
    try:
        write_repair(config.kafka.client_options(), progress_topic(config.name), asked)
    except CdcError as error:
        log.warning(
            "Kafka may have taken rows after another bridge took over, so older rows may stand after newer ones; the "
            "active bridge could not be asked to publish them again",
            rows=rows,
            reason=str(error),
            remedy="run cdc backfill --sweep, or cdc reconcile --repair, for the tables of these topics",
        )
    else:
        log.warning(
            "Kafka may have taken rows after another bridge took over: the active bridge is asked to publish their "
            "keys again",
            rows=rows,
            remedy="wait: the active bridge publishes them again within seconds; if none runs, start one",
        )
