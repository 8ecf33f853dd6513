"""The description of a reconciliation."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import (
    STRICT,
    FileSettings,
    JobTable,
    KafkaSettings,
    LakeSettings,
    MariadbSettings,
    PostgresSettings,
    SparkSettings,
    Stream,
)


class RepairedKeys(BaseModel):
    """The number of keys that were sent to the bridge, and of the records that it wrote for them."""

    model_config = STRICT

    keys: int
    rows: int
    tombstones: int
    touched: int


class ReconcileJob(BaseModel):
    """Compare tables with their topics, and with the replica.

    Attributes:
        run: id of the run, part of the report.
        tool_version: version of the program that started the job.
        replica: the replica database, or the lake; None to compare only source and topics.
        folder: where the report and the differing keys go; on a cluster, a place that all its machines share.
        where: SQL condition on the rows of source and replica; rows outside it are compared on neither side. Only for a
            single table, and only with a replica on PostgreSQL.
        columns: the columns to compare, by table; empty for all.
        fence_timeout_s: how long the bridge may take to publish what the snapshot sees.
        max_snapshot_s: how long one snapshot may be held: it keeps VACUUM from removing rows in the whole cluster.
        connections: how many tasks read the source at once.
        rounds: how often keys in flight are looked at again after the first time.
        passes: number of snapshots that share the key space, for tables that take longer than ``max_snapshot_s``.
        state: folder with what earlier runs learned about the topics, so that only new records are read; None to read
            all records. Not with several ``passes``; a run that is restricted to keys does not use it.
        resume: continue an interrupted run of the same comparison in ``folder``.
        samples: number of sample keys per table and class of difference.
        redact: hide values in the report; classes, counts, coordinates and column names stay.
        keys: by table, a file of keys as ``write_keys`` wrote it; only these keys are looked at.
        keys_to: folder on the driver's machine for the differing keys, one file per table; None for no files.
        repaired: by table, what the bridge did with these keys, for the report.
        certificate: absolute path of the file to which the run adds its certificate; None for none. Only for a run that
            compares whole tables, each at one snapshot, without ``state``.
        replica_lsn: wait until the replica has reached this LSN; empty for no wait.
    """

    model_config = STRICT

    run: str
    tool_version: str
    spark: SparkSettings
    kafka: KafkaSettings
    source: PostgresSettings
    replica: PostgresSettings | MariadbSettings | FileSettings | LakeSettings | None = None
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
    certificate: str | None = None
    replica_lsn: str = ""
