"""Which tables a backfill takes up next, out of all that there is a record of."""

from __future__ import annotations

from dataclasses import replace

from cdc.backfill.records import Records
from cdc.lsn import LSN
from cdc.record import BackfillProgress, BackfillState


def record(table: str, state: BackfillState) -> BackfillProgress:
    counts = dict.fromkeys(("estimated_rows", "rows", "swept", "seq", "started_at", "updated_at"), 0)
    return BackfillProgress(
        table=table,
        topic=f"shop.{table}",
        request="",
        state=state,
        cause="initial",
        whole=False,
        where=None,
        rate=None,
        sweep=False,
        below=(),
        leaves=(),
        lsn=LSN(1),
        **counts,
    )


def test_what_was_begun_goes_on_before_what_waits() -> None:
    states: dict[str, BackfillState] = {
        "public.a": "waiting", "public.b": "done", "public.c": "running", "public.d": "paused", "public.e": "waiting",
    }  # fmt: skip
    records = Records({table: record(table, state) for table, state in states.items()})

    assert [each.table for each in records.to_be_read()] == ["public.c", "public.a", "public.e"]
    assert records.get("public.b") == record("public.b", "done")
    assert "public.z" not in records


def test_a_table_is_left_when_it_is_done_or_paused_and_comes_back_when_asked_for() -> None:
    records = Records({"public.a": record("public.a", "waiting")})
    assert records.are_to_be_read
    for state in ("running", "paused"):
        records["public.a"] = replace(records["public.a"], state=state)
        assert records.are_to_be_read == (state == "running")
    records["public.a"] = replace(records["public.a"], state="waiting")
    records["public.a"] = replace(records["public.a"], state="running")
    assert [each.state for each in records.to_be_read()] == ["running"]
    records["public.a"] = replace(records["public.a"], state="done")
    assert (records.are_to_be_read, [*records.to_be_read()]) == (False, [])
