"""Shows the demo's result in words and numbers, all of them from this run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.markup import escape

from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.probes import Interruption, Latency
from cdc.lab.demo.run import Outcome
from cdc.lab.demo.screen import Screen

_NAMES = {"run": "bridge", "sink": "sink"}


def show(outcome: Outcome, screen: Screen) -> None:
    """Print the tables and the verdict."""
    screen.table(
        "Three sides, row by row, every column in the server's text",
        ("table", "rows", "records", "deletes", "missing", "extra", "differ", "back", "twice"),
        _table_rows(outcome),
    )
    screen.facts("Numbers of this run", _numbers(outcome))
    findings = [finding for verdict in outcome.verdicts for finding in verdict.findings()]
    if outcome.arrivals.broken_cuts:
        findings.append(
            f"{outcome.arrivals.broken_cuts} cuts of the replica broke the invariant orders.total = sum of its lines"
        )
    screen.lines("")
    for finding in findings:
        screen.lines(f"[red]✗[/] {escape(finding)}")
    if outcome.holds:
        screen.lines(
            "[bold green]✓ source = topic = replica[/], although bridge and sink were killed on the way:",
            f"  0 missing, 0 duplicates, 0 out of order, 0 torn cuts; {screen.elapsed_s:.0f} s in all.",
        )
    else:
        screen.lines("[bold red]✗ the three sides differ[/]: this is a bug; the findings above name the keys.")


def where_next(place: DemoPlace, screen: Screen, *, kept: bool) -> None:
    """Print what to try next."""
    if not kept:
        screen.lines(
            "",
            "Next: `cdc demo --keep` leaves everything running, so that you can look around;",
            "      `cdc check -c your.yaml` shows what your own database needs;",
            "      docs/start.md takes you through it.",
        )
        return
    screen.lines(
        "",
        "[bold]Everything keeps running until Ctrl-C.[/] To try:",
        f"  cdc status -c {place.config}",
        f"  cdc check -c {place.config}",
        f"  cdc backfill -c {place.config} public.orders   [dim]# publish the table again, alongside the stream[/]",
        f"  psql {place.source_dsn}       [dim]# change something here …[/]",
        f"  psql {place.replica_dsn}   [dim]# … and see it there; SELECT * FROM cdc.cut is the LSN[/]",
        f"  kcat -b {place.bootstrap} -t {place.name}.public.orders -X isolation.level=read_committed -K ' = ' -e",
        f"  curl http://127.0.0.1:{place.bridge_port}/metrics   [dim]# bridge; /live and /ready too[/]",
        f"  curl http://127.0.0.1:{place.sink_port}/metrics   [dim]# sink[/]",
        f"  tail -f {place.directory}/bridge.log {place.directory}/sink.log",
    )


def _table_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for verdict in outcome.verdicts:
        counts = (
            verdict.row_count,
            verdict.topic.records,
            verdict.topic.tombstones,
            sum(len(one.missing) for one in verdict.differences),
            sum(len(one.extra) for one in verdict.differences),
            sum(len(one.different) for one in verdict.differences),
            len(verdict.topic.backward),
            len(verdict.topic.duplicates),
        )
        yield (verdict.table.removeprefix("public."), *(f"{count:,}" for count in counts))


def _numbers(outcome: Outcome) -> Iterator[tuple[str, str]]:
    arrivals, interruptions = outcome.arrivals, outcome.interruptions
    records = sum(verdict.topic.records for verdict in outcome.verdicts)
    backfilled = outcome.backfilled
    rate = backfilled.row_count / backfilled.seconds
    yield "backfill", f"{backfilled.row_count:,} rows in {backfilled.seconds:.1f} s, {rate:,.0f} rows/s"
    yield "row changes during it", f"{backfilled.changes:,}, published by the stream"
    yield "row changes after it", f"{outcome.changes:,} in {outcome.traffic_s:.1f} s, including the kills"
    yield "rate", f"{outcome.changes / outcome.traffic_s:,.0f} changes/s, made by one connection"
    yield "records in the topics", f"{records:,}"
    for name, side, daemons in (
        ("topic", arrivals.on_topic, ("run",)),
        ("replica", arrivals.on_replica, ("run", "sink")),
    ):
        affected = [one for one in interruptions if one.daemon in daemons]
        latencies = arrivals.latency(side, affected, load_ended_s=outcome.load_ended_s)
        yield f"commit → {name}, at rest", _latency(latencies.at_rest)
        yield f"commit → {name}, under this load", _latency(latencies.under_load)
    for one in interruptions:
        yield f"{_NAMES[one.daemon]} killed", _recovery(one)
    yield (
        "cuts of the replica checked",
        f"{arrivals.consistent_cuts + arrivals.broken_cuts}, torn: {arrivals.broken_cuts}",
    )
    yield "LSN that the replica shows", str(outcome.cut)


def _recovery(one: Interruption) -> str:
    dead = f"dead {one.started_s - one.killed_s:.1f} s, "
    if math.isinf(one.recovered_s):
        return dead + "caught up after the traffic"
    return f"{dead}caught up {one.recovered_s - one.started_s:.1f} s after the start"


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "too few probes"
    return f"p50 {latency.p50_s * 1000:.0f} ms, p99 {latency.p99_s * 1000:.0f} ms ({latency.count:,} probes)"
