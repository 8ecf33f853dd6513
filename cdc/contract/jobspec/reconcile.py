"""What a reconciliation is told."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, PostgresSettings, SparkSettings, Stream


class RepairedKeys(BaseModel):
    """Keys that were handed to the bridge, and the records that it wrote of them."""

    model_config = STRICT

    keys: int
    rows: int
    tombstones: int
    touched: int


class ReconcileJob(BaseModel):
    """Compare these tables with their topics.

    Attributes:
        run: id of the run, part of the report.
        tool_version: of what started the job.
        replica: the replica database; None leaves the third side out.
        folder: where the report and the differing keys go; on a cluster a place that all its machines share.
        where: SQL condition on the rows of source and replica; rows outside it are compared on neither side. One table
            only.
        columns: compare only these, by table; none for all.
        fence_timeout_s: how long the bridge may take to publish what the snapshot sees.
        max_snapshot_s: how long one snapshot may be held: it keeps VACUUM from removing rows in the whole cluster.
        connections: how many tasks read the source at once.
        rounds: looks at keys that are in flight, after the first.
        passes: snapshots to divide the key space over, for tables that take longer than ``max_snapshot_s``.
        state: folder with what earlier runs learned of the topics, so that only what is new is read; None reads all.
            Not with several ``passes``; a run that is restricted to keys leaves it alone.
        resume: go on with what an interrupted run of the same comparison in ``folder`` left undone.
        samples: per table and class.
        keys: by table a file of keys to look at, and no others, as ``write_keys`` wrote it.
        keys_to: folder on the driver's machine for the keys that differ, a file by table, for a repair; None for none.
        repaired: by table what the bridge did to these keys, for the report.
        replica_lsn: wait until the replica has come to this LSN; empty for any.
    """

    model_config = STRICT

    run: str
    tool_version: str
    spark: SparkSettings
    kafka: KafkaSettings
    source: PostgresSettings
    replica: PostgresSettings | None = None
    stream: Stream
    tables: tuple[JobTable, ...]
    folder: str
    where: str | None = None
    columns: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    fence_timeout_s: float = Field(default=60, gt=0)
    max_snapshot_s: float = Field(default=1800, gt=0)
    connections: int = Field(default=4, ge=1, le=64)
    rounds: int = Field(default=3, ge=0, le=20)
    passes: int = Field(default=1, ge=1, le=4096)
    state: str | None = None
    resume: bool = False
    samples: int = Field(default=10, ge=0, le=1000)
    redact: bool = False
    keys: dict[str, str] = Field(default_factory=dict)
    keys_to: str | None = None
    repaired: dict[str, RepairedKeys] = Field(default_factory=dict)
    replica_lsn: str = ""
