"""How long the slot has, by how quickly its room shrinks; told by whoever may ask the source."""

from __future__ import annotations

import math
from dataclasses import replace

from prometheus_client import CollectorRegistry

from cdc.base.metrics import SlotMetrics
from cdc.bridge.source.slot_meter import SlotMeter
from cdc.contract.slot_state import SlotState

SLOT = SlotState("s", "pgoutput", "d", False, None, None, None, "extended", 1_000, 7, 5, None)


def test_time_to_full_is_by_the_rate_of_the_last_minutes() -> None:
    registry, now = CollectorRegistry(), [0.0]
    meter = SlotMeter(SlotMetrics(registry), clock=lambda: now[0])

    def left(at: float, room: int | None) -> float | None:
        now[0] = at
        meter.look(replace(SLOT, safe_wal_size=room))
        return registry.get_sample_value("cdc_slot_seconds_to_full")

    assert left(0, 1_000) == math.inf, "one look tells no rate"
    assert left(10, 900) == 90
    assert left(20, 900) == 180
    assert left(30, 1_000) == math.inf, "the bridge confirmed"
    assert left(400, 700) == math.inf, "what was before is forgotten"
    assert left(410, 690) == 690
    assert left(420, -5) == 0
    assert left(430, None) == math.inf, "no limit"


def test_of_several_deployments_each_has_its_name() -> None:
    registry = CollectorRegistry()
    metrics = SlotMetrics(registry, ["bridge"])
    for name, room in (("shop", 1), ("billing", 2)):
        SlotMeter(metrics, name).look(replace(SLOT, safe_wal_size=room))
    told = [registry.get_sample_value("cdc_slot_safe_wal_bytes", {"bridge": each}) for each in ("shop", "billing")]
    assert told == [1, 2]
