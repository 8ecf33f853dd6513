"""What a reconciliation found, as one typed document: text, JSON, JUnit and HTML are views of it and know nothing else.

The JSON form is a contract (``SCHEMA_VERSION``): fields may be added in a minor version, never change their meaning.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

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
    "unverifiable",
]

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
    """What compared it."""

    model_config = _STRICT

    tool_version: str
    spark_version: str
    connector_version: str
    master: str


class Stage(BaseModel):
    """How long a part of the run took, in seconds; ``rows`` it read, None where that says nothing."""

    model_config = _STRICT

    name: str
    seconds: float
    rows: int | None = None


class OffsetRange(BaseModel):
    """The records of one Kafka partition that were read: ``start`` up to, not including, ``end``."""

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
    """Keys, but for ``records``: all committed records of the topic that were read."""

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
    unverifiable: int = 0

    @property
    def differences(self) -> int:
        """Keys for which source and topic are known to disagree."""
        return self.missing_in_topic + self.extra_in_topic + self.value_mismatch + self.foreign


class ReplicaCounts(BaseModel):
    """The third side: the replica against the topic at the LSN that the replica records."""

    model_config = _STRICT

    table: str
    lsn: str
    rows: int = 0
    identical: int = 0
    missing_in_replica: int = 0
    extra_in_replica: int = 0
    value_mismatch: int = 0
    in_flight: int = 0

    @property
    def differences(self) -> int:
        """Keys for which topic and replica are known to disagree."""
        return self.missing_in_replica + self.extra_in_replica + self.value_mismatch


class Round(BaseModel):
    """One look at the keys that were open: with its own snapshot, later than the round before."""

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
        mismatches: keys in which it differs.
        null_or_value: of these, how many are NULL on one side only.
        largest_difference: of numbers, as decimal text; None where the column holds none.
        examples: a few pairs.
        hint: a pattern that explains all of them, in words; empty when there is none.
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
    """One differing key, with all that leads to the event behind it.

    Attributes:
        side: what the source was compared with.
        key: record key as it lies in the topic (JSON), or would.
        source: column → text of the source's row, None when it has none.
        other: the same of the topic or the replica.
        differing: columns that differ.
        partition, offset, op, lsn, seq, xid, commit_time: of the topic's latest visible record; None without one.
        commit_time: ISO 8601, UTC.
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
    """Where the differences gather: one bad hour or one bad partition is the usual root."""

    model_config = _STRICT

    by_commit_time: tuple[Bar, ...] = ()
    by_partition: tuple[Bar, ...] = ()
    by_bucket: tuple[Bar, ...] = ()


class Repair(BaseModel):
    """What was handed to the bridge, and what a second look found."""

    model_config = _STRICT

    keys: int
    rows: int
    tombstones: int
    touched: int
    verified: int
    still_different: int


class TableReport(BaseModel):
    """One table against its topic, and its replica if asked.

    Attributes:
        reason: why it is not verified; empty otherwise.
        remedy: the command or change that lets it be verified; empty otherwise.
        snapshot: ``pg_current_snapshot()`` at which all was compared.
        lsn: H, the WAL position that the bridge had to reach first.
        fence_wait_s: how long that took.
        lag_bytes, lag_s: how far the bridge was behind when the run began; None when unknown.
        passes: how many snapshots the key space was divided over; more than one is exact per pass only.
        causes: how often each likely cause was found, over all differing keys that were looked at.
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
    """A whole run."""

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
