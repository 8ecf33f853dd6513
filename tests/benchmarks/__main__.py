"""Command line of the benchmarks; ``python -m tests.benchmarks --help``."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.benchmarks import (
    backfill,
    big,
    bridge,
    curves,
    dashboard,
    formats,
    latency,
    quarantine,
    recovery,
    shape_runs,
    sink,
    sink_changes,
    small_tables,
    starts,
    stores,
    tables,
)
from tests.benchmarks.output import Run
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Section
from tests.benchmarks.servers import Servers, hardware, servers
from tests.benchmarks.targets import judged, lines

SECTIONS = (
    "bridge",
    "sink",
    "backfill",
    "latency",
    "quarantine",
    "recovery",
    "formats",
    "replicas",
    "big",
    "shapes",
    "curves",
    "tables",
    "starts",
    "spark",
    "lake",
    "small",
    "stores",
    "view",
    "compacted",
    "dashboard",
)
QUIET_PERCENT = 10.0
"""Of all cores, measured over a second: above it, somebody else is at work."""

SMALLEST_BACKLOG = 4000
"""One transaction of inserts, four of updates and one of deletes each fit in a whole number of times from here on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the wanted sections and print each as soon as it is there. Returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.changes < SMALLEST_BACKLOG or options.changes % SMALLEST_BACKLOG:
        sys.exit(f"--changes must be a multiple of {SMALLEST_BACKLOG:,}, not {options.changes:,}")
    # A polite kill cleans up like Ctrl-C does, which a shell makes its background jobs ignore.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    started, sections = time.monotonic(), []
    busy_percent = psutil.cpu_percent(interval=1.0)
    try:
        with ExitStack() as stack:
            running = None if options.sections == ["stores"] else stack.enter_context(servers(_say))
            machine = running.machine() if running else hardware()
            _say(f"Machine: {machine}")
            if busy_percent > QUIET_PERCENT:
                _say(f"Warning: {busy_percent:.0f} % of all cores were busy before the start; figures will be worse")
            _say("")
            for section in _measure(running, options):
                _say(section.text())
                sections.append(section)
                if options.output:
                    # After each section: a run that is interrupted has written what it knew.
                    took_s, command = time.monotonic() - started, " ".join(sys.argv[1:])
                    Run(machine, command, busy_percent, took_s, sections).write(options.output)
    except BenchmarkFailed as failure:
        _say(f"FAILED: {failure}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; all servers are stopped")
        return 130
    _say("\n".join(["Targets", *lines(judged(sections)), ""]))
    _say(f"Took {time.monotonic() - started:.0f} s.")
    return 0


def _measure(running: Servers | None, options: argparse.Namespace) -> Iterator[Section]:
    wanted = options.sections or SECTIONS[:4]
    if "stores" in wanted:
        yield stores.measure(options.changes, options.runs, _say)
    if running is None:
        return
    if "bridge" in wanted:
        yield bridge.measure(running, options.changes, options.runs, with_peers=not options.without_peers)
    if "sink" in wanted:
        yield sink.measure(running, options.changes // 2, options.runs, with_peers=not options.without_peers)
        yield sink_changes.measure(running, options.changes // 2, options.runs)
    if "backfill" in wanted:
        yield backfill.measure(running, options.changes, options.runs, with_peers=not options.without_peers)
    if "latency" in wanted:
        yield from _latency(running, options)
    if "quarantine" in wanted:
        yield quarantine.measure(running, options.seconds, options.runs)
    if "recovery" in wanted:
        yield from recovery.measure(running.directory, options.kills, _say)
    if "formats" in wanted:
        yield from formats.measure(running, options.changes, options.runs, with_peers=not options.without_peers)
    if "replicas" in wanted:
        # Imported here: the other sections need no drivers of other databases
        from tests.benchmarks import replicas

        yield from replicas.measure(running, options.changes // 2, options.runs, with_peers=not options.without_peers)
    if "spark" in wanted:
        # Imported here: the other sections need no Spark
        from tests.benchmarks import spark

        yield spark.measure(running, options.changes, options.runs)
    if "lake" in wanted:
        # Imported here: the other sections need no Spark
        from tests.benchmarks import lake

        yield from lake.measure(running, options.keys, options.runs)
    if "small" in wanted:
        yield small_tables.measure(running, options.small_tables, options.runs)
    if "big" in wanted:
        yield big.measure(running, options.big_rows)
    if "shapes" in wanted:
        yield shape_runs.measure(running, options.changes, options.big_rows, options.runs)
    if "curves" in wanted:
        yield from curves.measure(running, options.changes, options.runs, max(1, options.seconds // 2))
    if "view" in wanted:
        # Imported here: the other sections need no store.
        from tests.benchmarks import view

        yield from view.measure(running, options.view_keys, options.view_runs, options.seconds)
    if "compacted" in wanted:
        # Imported here: the other sections need no lessons.
        from tests.benchmarks import compacted

        yield from compacted.measure(running.bootstrap, running.broker_pid, options.changes, options.runs)
    if "dashboard" in wanted:
        yield dashboard.measure(running, options.seconds, options.runs)
    if "tables" in wanted:
        yield tables.measure(running, options.tables)
    if "starts" in wanted:
        yield starts.measure(running, options.runs)


def _latency(running: Servers, options: argparse.Namespace) -> Iterator[Section]:
    slow, _ = latency.RATES_PER_S
    for rate_per_s in latency.RATES_PER_S:
        yield from latency.measure(running, options.seconds, rate_per_s)
    for waits in (True, False):
        yield from latency.measure(running, options.seconds, slow, beside=latency.Archive(options.changes, waits))
    yield from latency.measure(running, options.seconds, slow, delivery="idempotent")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure bridge and sink beside the limits of this machine, and beside their peers.",
        epilog="Without any section: about 20 minutes on two quiet cores, with --runs 1 about ten. "
        "shapes and curves take a quarter of an hour each.",
    )
    # `choices` would refuse the empty list that `nargs="*"` gives by default.
    parser.add_argument(
        "sections", nargs="*", type=_section, help=f"of {', '.join(SECTIONS)}; without any: the first four"
    )
    parser.add_argument(
        "--changes",
        type=int,
        default=1_000_000,
        help="size of the backlog and of the table to backfill; the sink gets half; records of the compacted section",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        help="runs of each contender, which take turns: the tables show medians and ranges",
    )
    parser.add_argument("--seconds", type=int, default=20, help="measured time of the latency section, and its warm-up")
    parser.add_argument("--kills", type=int, default=5, help="how often the recovery section kills each part")
    parser.add_argument("--big-rows", type=int, default=10_000_000, help="rows in one transaction, in big and shapes")
    parser.add_argument("--tables", type=int, default=2_000, help="how many the tables section makes")
    parser.add_argument("--without-peers", action="store_true", help="measure nothing of other projects")
    parser.add_argument("--small-tables", type=int, default=100, help="how many the small section reconciles")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys of the lake section's topic")
    parser.add_argument("--view-keys", type=int, default=1_000_000, help="keys of the view section's table")
    parser.add_argument("--view-runs", type=int, default=1, help="runs of each rebuild of the view section")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write figures.json (every run) and figures.md there too"
    )
    return parser


def _section(name: str) -> str:
    if name not in SECTIONS:
        raise argparse.ArgumentTypeError(f"no section {name!r}; there are {', '.join(SECTIONS)}")
    return name


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
