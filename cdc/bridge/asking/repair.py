"""Has the bridge publish single keys of a table again: the row as it is now, or a tombstone.

The running bridge is asked through the progress topic, in parts. If none is running, one runs here until it is done.
"""

from __future__ import annotations

import contextlib
import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from cdc.base.config import Config
from cdc.base.errors import CdcError, ConfigError, SourceUnavailable, TopicRefused
from cdc.base.lsn import LSN, ZERO
from cdc.bridge.asking.allowed import make_bookkeeping_topics, tables_to_backfill
from cdc.bridge.asking.follow import UNTAKEN_S, Idle
from cdc.bridge.asking.own_bridge import OwnBridge
from cdc.contract.naming import progress_topic
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import RepairKey, RepairOutcome, RepairRequest
from cdc.contract.repair import is_repair_key, parse_repair_outcome, parts_of, repair_request_key
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.requests import withdraw_repair, write_repair
from cdc.kafka.replay.bounded import topic_ends
from cdc.kafka.replay.reader import TopicReader

MAX_KEYS: Final = 100_000
"""The most keys that a repair takes. For more, a backfill costs the source less than so many look-ups."""

_POLL_S: Final = 0.2
_RECORDS_PER_POLL: Final = 1_000


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """How far a repair is: ``done`` of ``keys``."""

    keys: int
    done: int


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What a repair did.

    Attributes:
        rows: how many rows were published again.
        tombstones: how many tombstones were written.
        touched: how many keys needed nothing, because the stream published something newer meanwhile.
        lsn: a position from which on the topic holds all of it.
    """

    rows: int
    tombstones: int
    touched: int
    lsn: LSN


def repair_keys(
    config: Config,
    table: str,
    keys: Sequence[RepairKey],
    *,
    timeout_s: float,
    tell: Callable[[RepairProgress], None],
    gives_up: bool = False,
) -> RepairResult:
    """Repair these keys of a table, and wait until it is done.

    Args:
        config: the whole configuration.
        table: ``namespace.table``.
        keys: at most ``MAX_KEYS``; a key that is given twice counts once.
        timeout_s: how long all of it may take.
        tell: called whenever some keys are done.
        gives_up: remove the entries that these keys have in quarantine, and publish nothing.

    Raises:
        ConfigError: the table is not captured, or there are too many keys.
        SourceUnavailable: no bridge did all of it in time. What was done stays done, and the rest is withdrawn.
        CdcError: the bridge could not do it, our own bridge ended with it, or it keeps us from asking.
    """
    wanted = list(dict.fromkeys(keys))
    if len(wanted) > MAX_KEYS:
        raise ConfigError(
            f"{len(wanted):,} keys of {table} are to be repaired, but one repair takes at most {MAX_KEYS:,}",
            remedy=f"run a backfill instead: cdc backfill {shlex.quote(table)} --sweep",
        )
    tables_to_backfill(config, [table], None)
    if not wanted:
        return RepairResult(0, 0, 0, ZERO)
    make_bookkeeping_topics(config)
    options, topic = config.kafka.client_options(), progress_topic(config.name)
    parts = list(parts_of(uuid.uuid4().hex, table, wanted, gives_up=gives_up))
    awaited = _Awaited(parts)
    starts = topic_ends(BrokerAdmin(options), topic)
    try:
        write_repair(options, topic, parts)
        with OwnBridge(config, None) as bridge:
            _follow(config, awaited, starts, bridge, time.monotonic() + timeout_s, tell)
    except (CdcError, KeyboardInterrupt):
        # Otherwise the next bridge would do, at some later time, what was given up here
        with contextlib.suppress(CdcError):
            withdraw_repair(options, topic, awaited.request, awaited.parts)
        raise
    return awaited.result


class _Awaited:
    """The parts of a request that are not done yet, and the results of the others."""

    def __init__(self, parts: Sequence[RepairRequest]) -> None:
        self.parts = {each.part: len(each.keys) for each in parts}
        self.request = parts[0].request
        self.result = RepairResult(0, 0, 0, ZERO)
        self._keys = {repair_request_key(self.request, part): part for part in self.parts}
        self._total = sum(self.parts.values())

    @property
    def progress(self) -> RepairProgress:
        """How far the repair is."""
        return RepairProgress(self._total, self._total - sum(self.parts.values()))

    def saw(self, record: StoredRecord) -> None:
        """Take a record of the progress topic: an outcome, or the tombstone of the request, which follows it.

        Raises:
            TopicRefused: the bridge could not do the repair.
        """
        if record.value is None and record.key in self._keys:
            self.parts.pop(self._keys[record.key], None)
        elif is_repair_key(record.key) and record.value is not None:
            outcome = parse_repair_outcome(record.value)
            if outcome.request == self.request and outcome.part in self.parts:
                self._take(outcome)

    def _take(self, outcome: RepairOutcome) -> None:
        if outcome.error:
            raise TopicRefused(f"not repaired: {outcome.error}", remedy=outcome.remedy)
        result = self.result
        self.result = RepairResult(
            result.rows + outcome.rows,
            result.tombstones + outcome.tombstones,
            result.touched + outcome.touched,
            max(result.lsn, outcome.lsn),
        )


def _follow(
    config: Config,
    awaited: _Awaited,
    starts: Mapping[Partition, int],
    bridge: OwnBridge,
    deadline_s: float,
    tell: Callable[[RepairProgress], None],
) -> None:
    """Follow the progress topic until every part is done, with a bridge of our own if no other one is running."""
    idle, told = Idle(config), awaited.progress
    with closing(TopicReader(_options(config))) as reader, closing(idle):
        reader.add(starts)
        while awaited.parts:
            for record in reader.poll(_RECORDS_PER_POLL, _POLL_S):
                awaited.saw(record)
            if awaited.progress != told:
                told = awaited.progress
                tell(told)
            bridge.check()
            if not bridge.is_started and idle.for_s() > UNTAKEN_S:
                bridge.start()
            if awaited.parts and time.monotonic() > deadline_s:
                raise _too_late(told)


def _options(config: Config) -> Mapping[str, Any]:
    return config.kafka.client_options()


def _too_late(progress: RepairProgress) -> SourceUnavailable:
    if progress.done:
        return SourceUnavailable(
            f"{progress.done:,} of {progress.keys:,} keys were repaired in time, the others were not",
            remedy="repair again with more time; what is done stays done",
        )
    return SourceUnavailable(
        "the bridge did not take the repair in time",
        remedy="look at the bridge's log: it may wait for a lock on the table, or for its stream. A bridge of an older "
        "version has to be restarted",
    )
