"""The findings of a reconciliation as one typed document. Text, JSON, JUnit and HTML are views of it.

The JSON form is a contract (``SCHEMA_VERSION``): a minor version may add fields, but never changes what a field means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = "1.0"

Verdict: TypeAlias = Literal["identical", "different", "not_verified"]
Side: TypeAlias = Literal["topic", "replica"]
DifferenceClass: TypeAlias = Literal[
    "missing_in_topic",
    "extra_in_topic",
    "missing_in_replica",
    "extra_in_replica",
    "value_mismatch",
    "foreign",
    "in_flight",
]
CLASSES: Final[tuple[DifferenceClass, ...]] = get_args(DifferenceClass)
UNJUDGED: Final[frozenset[DifferenceClass]] = frozenset({"in_flight"})
"""The classes of keys that are neither identical nor proven to differ. All other classes are differences."""

_STRICT = ConfigDict(extra="forbid", frozen=True)


class Source(BaseModel):
    """The database that was compared."""

    model_config = _STRICT

    host: str
    port: int
    database: str
    server_version: str
    system_identifier: str


class SparkEngine(BaseModel):
    """The program that compared, and the Spark it ran on."""

    model_config = _STRICT

    tool_version: str
    spark_version: str
    connector_version: str
    master: str


class Stage(BaseModel):
    """A part of the run: how many seconds it took, and how many rows it read (None if that does not apply)."""

    model_config = _STRICT

    name: str
    seconds: float
    rows: int | None = None


class OffsetRange(BaseModel):
    """The offsets of one Kafka partition that were read: from ``start`` up to, but not including, ``end``."""

    model_config = _STRICT

    partition: int
    start: int
    end: int
    records: int


class SkippedColumn(BaseModel):
    """A column that was not compared, and why."""

    model_config = _STRICT

    name: str
    reason: str


class Counts(BaseModel):
    """Counts of keys, except ``records``: how many offsets of the topic were read."""

    model_config = _STRICT

    source_rows: int = 0
    records: int = 0
    live_keys: int = 0
    tombstones: int = 0
    identical: int = 0
    missing_in_topic: int = 0
    extra_in_topic: int = 0
    value_mismatch: int = 0
    foreign: int = 0
    in_flight: int = 0

    @property
    def differences(self) -> int:
        """The number of keys for which source and topic are proven to differ."""
        return differences(by_class(self))


class ReplicaCounts(BaseModel):
    """The comparison of the replica, or of a lake in its place, with the topic, at the LSN that it records.

    Attributes:
        table: the name of the replica's table; of a lake, the table's folder.
        version: the version of the lake's table that was compared; None for a replica.
    """

    model_config = _STRICT

    kind: Literal["replica", "lake"] = "replica"
    table: str
    lsn: str
    version: int | None = None
    rows: int = 0
    identical: int = 0
    missing_in_replica: int = 0
    extra_in_replica: int = 0
    value_mismatch: int = 0
    in_flight: int = 0

    @property
    def at(self) -> str:
        """The moment at which it was compared, in words."""
        return f"at LSN {self.lsn}" + ("" if self.version is None else f" (version {self.version})")

    @property
    def differences(self) -> int:
        """The number of keys for which topic and replica are proven to differ."""
        return differences(by_class(self))


def by_class(counts: Counts | ReplicaCounts) -> dict[DifferenceClass, int]:
    """Returns the counts of keys that are not identical. Each class that one of the two models has is in it."""
    found = counts.model_dump()
    return {each: found[each] for each in CLASSES if each in found}


def differences(classes: Mapping[DifferenceClass, int]) -> int:
    """Returns how many keys are proven to differ: all but those that could not be judged."""
    return sum(number for name, number in classes.items() if name not in UNJUDGED)


class Round(BaseModel):
    """One look at the keys that were still open, with a snapshot of its own."""

    model_config = _STRICT

    number: int
    snapshot: str
    lsn: str
    keys: int
    in_flight: int


class Bar(BaseModel):
    """One bar of a histogram."""

    model_config = _STRICT

    label: str
    count: int


class Example(BaseModel):
    """Two values of one column that differ; None is NULL."""

    model_config = _STRICT

    source: str | None
    other: str | None


class ColumnDifferences(BaseModel):
    """How one column differs over all mismatching keys.

    Attributes:
        mismatches: how many keys differ in this column.
        null_or_value: how many of them are NULL on one side only.
        largest_difference: the largest difference between two numbers, as decimal text; None if there are no numbers.
        examples: a few pairs of values.
        hint: a pattern that explains all of them, in words; empty if there is none.
    """

    model_config = _STRICT

    name: str
    sql_type: str
    mismatches: int
    null_or_value: int
    largest_difference: str | None
    examples: tuple[Example, ...]
    hint: str


class Sample(BaseModel):
    """One differing key, with everything that helps to find what caused it.

    Attributes:
        side: ``topic`` if source and topic were compared, ``replica`` if topic and replica were.
        key: the record key (JSON) that the topic has, or should have.
        source: the source's row (the topic's for a replica) as text by column; None if there is none.
        other: the topic's row (the replica's for a replica), in the same form.
        differing: the columns that differ.
        partition, offset, op, lsn, seq, xid, commit_time: the topic's latest visible record of the key; None if there
            is none. The commit time is ISO 8601 in UTC.
        cause: the likely cause, in words.
    """

    model_config = _STRICT

    side: Side
    difference: DifferenceClass
    key: str
    source: dict[str, str | None] | None
    other: dict[str, str | None] | None
    differing: tuple[str, ...]
    partition: int | None
    offset: int | None
    op: str | None
    lsn: str | None
    seq: int | None
    xid: int | None
    commit_time: str | None
    cause: str


class Histograms(BaseModel):
    """The distributions of the differences, which show where they gather: often in one bad hour or partition."""

    model_config = _STRICT

    by_commit_time: tuple[Bar, ...] = ()
    by_partition: tuple[Bar, ...] = ()
    by_bucket: tuple[Bar, ...] = ()


class Repair(BaseModel):
    """What was handed to the bridge for repair, and what a second comparison found."""

    model_config = _STRICT

    keys: int
    rows: int
    tombstones: int
    touched: int
    verified: int
    still_different: int


class TableReport(BaseModel):
    """The comparison of one table with its topic, and with its replica if that was asked for.

    Attributes:
        reason: why the table is not verified; empty otherwise.
        remedy: the command or change that lets it be verified; empty otherwise.
        snapshot: the ``pg_current_snapshot()`` at which everything was compared.
        lsn: H, the WAL position that the bridge had to reach first.
        fence_wait_s: how long the bridge took to reach it.
        lag_bytes, lag_s: how far the bridge was behind when the run began; None if unknown.
        passes: over how many snapshots the keys were divided; with more than one, each pass is exact at its own.
        causes: how often each likely cause was found, over all differing keys.
        keys_path: Parquet of every differing key; empty without differences.
    """

    model_config = _STRICT

    table: str
    topic: str
    verdict: Verdict
    reason: str
    snapshot: str
    lsn: str
    fence_wait_s: float
    lag_bytes: int | None
    lag_s: float | None
    passes: int
    mode: Literal["full", "incremental"]
    where: str | None
    key_columns: tuple[str, ...]
    columns_compared: tuple[str, ...]
    columns_skipped: tuple[SkippedColumn, ...]
    rules: tuple[str, ...]
    offsets: tuple[OffsetRange, ...]
    counts: Counts
    replica: ReplicaCounts | None
    rounds: tuple[Round, ...]
    columns: tuple[ColumnDifferences, ...]
    causes: tuple[Bar, ...]
    histograms: Histograms
    samples: tuple[Sample, ...]
    stages: tuple[Stage, ...]
    keys_path: str
    repair: Repair | None = None
    remedy: str = ""


class Report(BaseModel):
    """The report of a whole run."""

    model_config = _STRICT

    schema_version: str = SCHEMA_VERSION
    run: str
    started_at: str
    ended_at: str
    verdict: Verdict
    exit_code: Literal[0, 1, 2]
    source: Source
    kafka: str
    isolation_level: Literal["read_committed"] = "read_committed"
    engine: SparkEngine
    redacted: bool
    stages: tuple[Stage, ...]
    tables: tuple[TableReport, ...]
