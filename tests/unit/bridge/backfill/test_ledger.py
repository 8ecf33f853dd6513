"""Which tables a backfill takes up next, out of all that there is a record of."""

from __future__ import annotations

from dataclasses import replace

from cdc.base.lsn import LSN
from cdc.bridge.backfill.ledger import Ledger
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.record import BackfillProgress, BackfillState
from tests.support.topic_writer import FIRST_BACKFILL
from tests.unit.bridge.backfill.stage import Stream, World, table_info


def record(table: str, state: BackfillState) -> BackfillProgress:
    return replace(FIRST_BACKFILL, table=table, topic=f"shop.{table}", state=state)


def ledger(**states: BackfillState) -> Ledger:
    stored = {f"public.{name}": record(f"public.{name}", state) for name, state in states.items()}
    return Ledger(stored, StreamSide(Stream(), TouchedKeys()), World([]))


def test_what_was_begun_goes_on_before_what_waits() -> None:
    tables = ledger(a="waiting", b="done", c="running", d="paused", e="waiting")
    assert [each.name for each in tables.waiting] == ["public.c", "public.a", "public.e"]
    assert tables.under_way == []
    assert not tables.wants_flush
    found = tables.find("public.b")
    assert found is not None
    assert found.progress == record("public.b", "done")
    assert tables.find("public.z") is None


def test_a_table_is_left_when_it_is_done_or_paused_and_comes_back_when_asked_for() -> None:
    tables = ledger(a="waiting")
    assert tables.is_active
    tables.put(record("public.a", "paused"))
    assert (tables.is_active, tables.wants_flush) == (False, True)
    tables.flush(LSN(1))
    assert not tables.wants_flush
    tables.put(record("public.a", "waiting"))
    (table,) = tables.waiting
    table.begin(table_info("a"), ())
    tables.began(table)
    assert ([*tables.waiting], tables.under_way) == ([], [table])
    table.finish()
    assert (tables.under_way, tables.is_active, tables.wants_flush) == ([], True, True)
    tables.flush(LSN(2))
    assert (tables.is_active, tables.wants_flush) == (False, False)
    assert table.progress.state == "done"


def test_of_a_table_that_another_took_the_place_of_nothing_is_written_any_more() -> None:
    around = World(["a"])
    tables = Ledger({}, StreamSide(Stream(), TouchedKeys()), around)
    tables.put(record("public.a", "waiting"))
    (before,) = tables.waiting
    before.begin(table_info("a"), ())
    tables.began(before)
    before.published(5, 5)
    tables.put(replace(record("public.a", "waiting"), request="another"))
    tables.flush(LSN(1))
    assert [(each.request, each.state, each.rows) for each in around.progress] == [("another", "waiting", 0)]
    assert tables.under_way == []
