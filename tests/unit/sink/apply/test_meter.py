"""What the sink says of itself: the moment at which the last table has become exact."""

from __future__ import annotations

from structlog.testing import capture_logs

from cdc.base.lsn import LSN
from cdc.contract.ports import ReplicaTable
from cdc.contract.record import Progress, SourceIdentity
from cdc.sink.apply.run import SinkMeter
from cdc.sink.apply.session import CutReport


def report(*states: str) -> CutReport:
    progress = Progress(LSN(7), None, 1, SourceIdentity("1", 1, 1))
    tables = {
        str(number): ReplicaTable(str(number), f"public.t{number}", state, None, 0)
        for number, state in enumerate(states)
    }
    return CutReport(progress, True, {}, tables)


def test_it_is_said_once_when_all_tables_are_exact_with_the_time_it_took() -> None:
    meter = SinkMeter()
    with capture_logs() as said:
        meter.cut(report())
        meter.cut(report("exact", "loading"))
        assert not said
        for _ in range(3):
            meter.cut(report("exact", "exact"))
    (line,) = said
    assert line["event"] == "all 2 tables are exact"
    assert line["lsn"] == "0/7"
    assert line["took_s"] >= 0


def test_a_moment_in_between_is_not_told_of() -> None:
    meter = SinkMeter()
    with capture_logs() as said:
        for state in ("exact", "catching_up", "exact"):
            meter.cut(report(state))
    assert [each["event"] for each in said] == ["the table is exact"]
