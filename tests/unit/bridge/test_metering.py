"""What the bridge's metrics say of its slot and of backfills."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import get_args

import pytest

from cdc.base.config import HttpConfig
from cdc.base.lsn import LSN
from cdc.base.metrics import BACKFILL_STATES
from cdc.bridge.metering import BridgeMeter
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import Begin, Commit
from cdc.contract.record import BackfillState, LeafProgress, Progress, SourceIdentity
from cdc.contract.slot_state import SlotState
from tests.support.topic_writer import FIRST_BACKFILL

SLOT = SlotState("s", "pgoutput", "d", False, None, None, None, "extended", None, 7, 5, None)
T = {"table": "public.t"}
NEVER_ENDS = 1 << 62
PROGRESS = Progress(LSN(1000), None, 0, SourceIdentity("1", 1, 1))


@pytest.fixture
def meter() -> BridgeMeter:
    return BridgeMeter(HttpConfig(), CountsByTable(), threading.Event())


def value(meter: BridgeMeter, name: str, **labels: str) -> float | None:
    return meter.registry.get_sample_value(f"cdc_bridge_{name}", labels)


def of_slot(meter: BridgeMeter, name: str) -> float | None:
    return meter.registry.get_sample_value(f"cdc_slot_{name}")


def test_slot(meter: BridgeMeter) -> None:
    unknown = of_slot(meter, "safe_wal_bytes")
    assert unknown is not None
    assert math.isnan(unknown), "0 would be an alarm"
    meter.slot(SLOT)
    names = ("safe_wal_bytes", "lag_bytes", "active", "invalidated", "retained_bytes")
    assert [of_slot(meter, name) for name in names] == [math.inf, 5, 0, 0, 7]
    meter.slot(replace(SLOT, active=True, safe_wal_size=3, wal_status="lost"))
    assert [of_slot(meter, name) for name in names] == [3, 5, 1, 1, 7]
    meter.slot(None)
    assert all(math.isnan(of_slot(meter, name) or 0) for name in names), "old figures are no figures"


def test_backfill(meter: BridgeMeter) -> None:
    leaf = LeafProgress("public", "t", 1, 100, ((0, 75),))
    first = replace(FIRST_BACKFILL, table="public.t", estimated_rows=400, leaves=(leaf,), started_at=NEVER_ENDS)
    meter.backfill(replace(first, rows=100))
    meter.backfill(replace(first, rows=300))
    assert value(meter, "backfill_rows_total", **T) == 300
    assert value(meter, "backfill_remaining_rows", **T) == 100
    assert value(meter, "backfill_state", **T, cdc_bridge_backfill_state="running") == 1
    meter.backfill(replace(first, request="next", rows=50, state="done"))
    assert value(meter, "backfill_rows_total", **T) == 350
    assert value(meter, "backfill_remaining_rows", **T) == 0
    assert value(meter, "backfill_state", **T, cdc_bridge_backfill_state="running") == 0


def test_rows_that_an_earlier_process_published_are_not_counted_again(meter: BridgeMeter) -> None:
    resumed = replace(FIRST_BACKFILL, table="public.t")
    meter.backfill(replace(resumed, rows=1_000))
    meter.backfill(replace(resumed, rows=1_010))
    assert value(meter, "backfill_rows_total", **T) == 10


def test_every_state_is_exported() -> None:
    assert get_args(BackfillState) == BACKFILL_STATES


def test_seconds_behind_are_the_age_of_what_is_not_published(meter: BridgeMeter) -> None:
    """A source at rest, whose WAL moves without commits, is not behind; it once was, more every second."""
    engine = Engine(resume=PROGRESS, xid=700, counts=CountsByTable(), touched=TouchedKeys())
    meter.follows(engine)
    assert value(meter, "publish_lag_seconds") == 0.0
    committed_us = time.time_ns() // 1000 - 60_000_000
    engine.begin(Begin(LSN(2000), committed_us, 700))
    engine.commit(Commit(LSN(2000), LSN(2010), committed_us))
    engine.begin(Begin(LSN(2020), committed_us + 50_000_000, 701))
    behind = value(meter, "publish_lag_seconds")
    assert behind is not None
    assert 60 <= behind < 70
    engine.published()
    behind = value(meter, "publish_lag_seconds")
    assert behind is not None
    assert 10 <= behind < 20, "of the second one only the beginning is published"
    engine.commit(Commit(LSN(2020), LSN(2030), committed_us))
    engine.published()
    assert value(meter, "publish_lag_seconds") == 0.0
