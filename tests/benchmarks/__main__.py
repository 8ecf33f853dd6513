"""Command line of the benchmarks; ``python -m tests.benchmarks --help``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.benchmarks import backfill, big, bridge, latency, sink, small_tables, tables
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Section
from tests.benchmarks.servers import Servers, servers
from tests.benchmarks.targets import judged

SECTIONS = ("bridge", "sink", "backfill", "latency", "big", "tables", "spark", "small")
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
        with servers(_say) as running:
            machine = running.machine()
            _say(f"Machine: {machine}")
            if busy_percent > QUIET_PERCENT:
                _say(f"Warning: {busy_percent:.0f} % of all cores were busy before the start; figures will be worse")
            _say("")
            for section in _measure(running, options):
                _say(section.text())
                sections.append(section)
    except BenchmarkFailed as failure:
        _say(f"FAILED: {failure}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; all servers are stopped")
        return 130
    if lines := list(judged(sections)):
        _say("\n".join(["Targets", *lines, ""]))
    took_s = time.monotonic() - started
    _say(f"Took {took_s:.0f} s.")
    if options.json:
        content = {
            "machine": machine,
            "busy_percent_before": busy_percent,
            "took_s": took_s,
            "sections": [section.json() for section in sections],
        }
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False))
    return 0


def _measure(running: Servers, options: argparse.Namespace) -> Iterator[Section]:
    wanted = options.sections or SECTIONS[:4]
    if "bridge" in wanted:
        yield bridge.measure(running, options.changes, options.runs, with_peers=not options.without_peers)
    if "sink" in wanted:
        yield sink.measure(running, options.changes // 2, options.runs)
    if "backfill" in wanted:
        yield backfill.measure(running, options.changes, options.runs, with_peers=not options.without_peers)
    if "latency" in wanted:
        for rate_per_s in latency.RATES_PER_S:
            yield from latency.measure(running, options.seconds, rate_per_s)
        yield from latency.measure(running, options.seconds, latency.RATES_PER_S[0], archive_rows=options.changes)
    if "spark" in wanted:
        # Imported here: the other sections need no Spark
        from tests.benchmarks import spark

        yield spark.measure(running, options.changes, options.runs)
    if "small" in wanted:
        yield small_tables.measure(running, options.small_tables, options.runs)
    if "big" in wanted:
        yield big.measure(running, options.big_rows)
    if "tables" in wanted:
        yield tables.measure(running, options.tables)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Measure bridge and sink beside the limits of this machine."
    )
    # `choices` would refuse the empty list that `nargs="*"` gives by default.
    parser.add_argument(
        "sections", nargs="*", type=_section, help=f"of {', '.join(SECTIONS)}; without any: the first four"
    )
    parser.add_argument(
        "--changes",
        type=int,
        default=1_000_000,
        help="size of the backlog and of the table to backfill; the sink gets half",
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender, which take turns")
    parser.add_argument("--seconds", type=int, default=20, help="measured time of the latency section, and its warm-up")
    parser.add_argument("--big-rows", type=int, default=5_000_000, help="rows of the big section's one transaction")
    parser.add_argument("--tables", type=int, default=2_000, help="how many the tables section makes")
    parser.add_argument("--without-peers", action="store_true", help="measure nothing of other projects")
    parser.add_argument("--small-tables", type=int, default=100, help="how many the small section reconciles")
    parser.add_argument("--json", type=Path, help="write every run to this file too")
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
