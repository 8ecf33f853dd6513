"""The figures that cdc is held to: a target each, met or missed by a factor, or not measured in this run.

Nearly each is a ratio of two rows of one run, or a figure per million rows, so that it says something on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.benchmarks.report import Section

GO_PQ_CDC_KAFKA: Final = 54_000 / 85_000
"""The rate of go-pq-cdc-kafka 1.3.1 (acks=all, lz4, 4 partitions) for the bridge's workload, beside pg_recvlogical's on
the same day and two cores. Its target is scaled with that, because its modules cannot be had everywhere."""


class Target(NamedTuple):
    """A figure of a section, or of two rows of it, and its bound.

    Attributes:
        section: how the section's title begins, and what else it contains.
        what: for people.
        row: whose figure.
        key: which one.
        bound: that it should reach.
        at_least: or that it should not exceed.
        beside: row to divide it by.
        scale: times this.
    """

    section: tuple[str, str]
    what: str
    row: str
    key: str
    bound: float
    at_least: bool = False
    beside: str = ""
    scale: float = 1.0

    def figure(self, sections: Sequence[Section]) -> float | None:
        """The median, divided by that of ``beside``; None when it was not measured."""
        for section in sections:
            if section.title.startswith(self.section[0]) and section.title.endswith(self.section[1]):
                figure = section.median(self.row, self.key)
                other = section.median(self.beside, self.key) if self.beside else 1.0
                return figure / (other * self.scale) if figure is not None and other else None
        return None

    def is_met(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound


_BRIDGE: Final = ("Bridge:", "")
_BACKFILL: Final = ("Backfill:", "")
_SINK: Final = ("Sink:", "")
_CHANGES: Final = ("Sink, changes:", "")
_BIG: Final = ("Big:", "")
_LATENCY: Final = ("Latency: single-row transactions, 1000/s", "after as long a warm-up")
_BESIDE: Final = ("Latency: single-row transactions, 500/s", "rows")
_IDEMPOTENT: Final = ("Latency: single-row transactions, 500/s", "delivery: idempotent")
_QUARANTINE: Final = ("Quarantine:", "")
_FORMATS_BRIDGE: Final = ("Formats, bridge:", "")
_FORMATS_SINK: Final = ("Formats, sink:", "")
_SQLITE: Final = ("Replica in SQLite:", "")
_DUCKDB: Final = ("Replica in DuckDB:", "")
_MARIADB: Final = ("Replica in MariaDB:", "")
_LAKE: Final = ("Lake:", "")
_LAKE_CHANGES: Final = ("Lake, changes:", "")
_REBUILD: Final = ("View rebuild:", "")
_READS: Final = ("View reads:", "")

_STAGED: Final = "staging + upsert, delete"
_TAKEN: Final = "beside taken rows"
_REFUSED: Final = "beside refused rows"
_BARE: Final = "bare MERGE into Delta"

TARGETS: Final = (
    Target(_BRIDGE, "bridge: client CPU seconds per million changes", "bridge", "cpu_s", 4.0),
    Target(_BRIDGE, "bridge: rate ÷ pg_recvlogical's", "bridge", "rate", 1.7, True, "pg_recvlogical"),
    Target(_BRIDGE, "bridge: wall ÷ decoding alone", "bridge", "wall_s", 2.0, False, "decoding alone (limit)"),
    Target(_BRIDGE, "bridge: rate ÷ Debezium's, tuned, cold", "bridge", "rate", 4.0, True, "Debezium, tuned"),
    Target(
        _BRIDGE,
        "bridge: rate ÷ go-pq-cdc-kafka's (scaled)",
        "bridge",
        "rate",
        3.0,
        True,
        "pg_recvlogical",
        GO_PQ_CDC_KAFKA,
    ),
    Target(_BRIDGE, "bridge: peak RSS MB", "bridge", "rss_mb", 200.0),
    Target(_BIG, "bridge: peak RSS MB, one large transaction", "bridge", "rss_mb", 200.0),
    Target(_BACKFILL, "backfill: rate ÷ COPY's", "backfill", "rate", 0.38, True, "COPY TO STDOUT (limit)"),
    Target(_BACKFILL, "backfill: rate ÷ Debezium's", "backfill", "rate", 3.0, True, "Debezium's snapshot, tuned"),
    Target(_BACKFILL, "backfill: peak RSS MB", "backfill", "rss_mb", 200.0),
    Target(_BIG, "backfill: peak RSS MB, millions of rows", "backfill", "rss_mb", 200.0),
    Target(_SINK, "sink: rate ÷ direct COPY's", "sink", "rate", 0.65, True, "direct COPY"),
    Target(_SINK, "sink: rate ÷ the JDBC sink's, tuned", "sink", "rate", 4.0, True, "JDBC sink, tuned"),
    Target(_CHANGES, "sink: updates and deletes ÷ staging + upsert", "sink", "rate", 1.0, True, _STAGED),
    Target(_SINK, "sink: peak RSS MB", "sink", "rss_mb", 250.0),
    Target(_BIG, "sink: peak RSS MB, one large transaction", "sink", "rss_mb", 250.0),
    Target(_LATENCY, "commit → topic at 1,000/s: p50 ms", "commit → topic", "p50_ms", 10.0),
    Target(_LATENCY, "commit → topic at 1,000/s: p99 ms", "commit → topic", "p99_ms", 50.0),
    Target(_BESIDE, "commit → topic beside a backfill: p99 ms", "commit → topic", "p99_ms", 150.0),
    Target(_IDEMPOTENT, "commit → topic at 500/s, idempotent: p50 ms", "commit → topic", "p50_ms", 6.0),
    Target(_IDEMPOTENT, "commit → topic at 500/s, idempotent: p99 ms", "commit → topic", "p99_ms", 10.0),
    Target(
        _QUARANTINE, "commit → topic: p99 beside refused rows ÷ taken", _REFUSED, "topic_p99_ms", 1.1, False, _TAKEN
    ),
    Target(
        _QUARANTINE, "commit → replica: p99 beside refused rows ÷ taken", _REFUSED, "replica_p99_ms", 1.1, False, _TAKEN
    ),
    Target(_FORMATS_BRIDGE, "bridge: Avro's rate ÷ JSON's", "avro", "rate", 0.8, True, "json"),
    Target(_FORMATS_BRIDGE, "bridge: Protobuf's rate ÷ JSON's", "protobuf", "rate", 0.8, True, "json"),
    Target(_FORMATS_SINK, "sink: Avro's rate ÷ JSON's", "avro", "rate", 0.8, True, "json"),
    Target(_FORMATS_SINK, "sink: Protobuf's rate ÷ JSON's", "protobuf", "rate", 0.8, True, "json"),
    Target(_FORMATS_BRIDGE, "bridge: JSON Schema's rate ÷ JSON's", "json-schema", "rate", 0.9, True, "json"),
    Target(_FORMATS_SINK, "sink: JSON Schema's rate ÷ JSON's", "json-schema", "rate", 0.9, True, "json"),
    Target(_FORMATS_BRIDGE, "bridge: envelope's rate ÷ JSON's", "envelope", "rate", 0.5, True, "json"),
    Target(_FORMATS_SINK, "sink: envelope's rate ÷ JSON's", "envelope", "rate", 0.5, True, "json"),
    Target(_FORMATS_BRIDGE, "bridge: rate of Avro's envelope ÷ JSON's", "avro envelope", "rate", 0.5, True, "json"),
    Target(_FORMATS_SINK, "sink: rate of Avro's envelope ÷ JSON's", "avro envelope", "rate", 0.5, True, "json"),
    Target(_FORMATS_BRIDGE, "bridge: JSON's rate ÷ Debezium's", "json", "rate", 3.0, True, "Debezium, json"),
    Target(
        _FORMATS_BRIDGE, "bridge: envelope's rate ÷ Debezium's", "envelope", "rate", 3.0, True, "Debezium, envelope"
    ),
    Target(_FORMATS_BRIDGE, "bridge: Avro's rate ÷ Debezium's", "avro", "rate", 3.0, True, "Debezium, avro"),
    Target(_SQLITE, "sink into SQLite: rate ÷ by hand", "sink", "rate", 0.5, True, "executemany"),
    Target(_DUCKDB, "sink into DuckDB: rate ÷ by hand", "sink", "rate", 0.5, True, "INSERT from Arrow"),
    Target(_MARIADB, "sink into MariaDB: rate ÷ LOAD DATA", "sink", "rate", 0.5, True, "LOAD DATA"),
    Target(_MARIADB, "sink into MariaDB: rate ÷ staged", "sink", "rate", 0.5, True, "LOAD DATA to staging + upsert"),
    Target(_MARIADB, "sink into MariaDB: rate ÷ the JDBC sink's", "sink", "rate", 3.0, True, "JDBC sink, tuned"),
    Target(_LAKE, "mirror to Delta: time ÷ bare MERGE", "mirror to Delta", "wall_s", 1.5, False, _BARE),
    Target(_LAKE_CHANGES, "mirror to Delta, 1 %: time ÷ bare MERGE", "mirror to Delta", "wall_s", 1.5, False, _BARE),
    Target(_REBUILD, "view in LMDB: rebuild ÷ bare consumer", "view in LMDB", "rate", 0.5, True, "bare consumer"),
    Target(_REBUILD, "view in Redis: rebuild ÷ bare consumer", "view in Redis", "rate", 0.5, True, "bare consumer"),
    Target(_REBUILD, "view in memory: rebuild ÷ bare consumer", "view in memory", "rate", 0.5, True, "bare consumer"),
    Target(_READS, "view in LMDB: a row over HTTP, p50 ms", "view in LMDB", "p50_ms", 1.0),
    Target(
        _READS, "view in LMDB: reads ÷ redis-benchmark's", "view in LMDB", "rate", 0.25, True, "redis-benchmark GET"
    ),
)


class Verdict(NamedTuple):
    """What became of a target; ``figure`` is None where it was not measured."""

    target: Target
    figure: float | None

    @property
    def bound(self) -> str:
        return f"{'≥' if self.target.at_least else '≤'} {self.target.bound:g}"

    @property
    def words(self) -> str:
        """Met or missed, and the figure as a multiple of the bound: above 1 is good."""
        if self.figure is None:
            return "not measured"
        by = self.figure / self.target.bound if self.target.at_least else self.target.bound / self.figure
        return (
            f"{'met' if self.target.is_met(self.figure) else 'missed'}, by a factor of {by if by >= 1 else 1 / by:.2f}"
        )


def judged(sections: Sequence[Section]) -> list[Verdict]:
    """All targets, in their order."""
    return [Verdict(each, each.figure(sections)) for each in TARGETS]


def lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """A line for each target."""
    width = max(len(each.target.what) for each in verdicts)
    for each in verdicts:
        figure = "–" if each.figure is None else f"{each.figure:,.2f}"
        yield f"  {each.target.what.ljust(width)}  {figure:>9}  {each.bound:>7}  {each.words}"
