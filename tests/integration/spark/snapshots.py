"""Snapshots as tests take and read them, in the session's Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdc.base.config import load
from cdc.cli.snapshot_command import source_position
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.snapshot import AsOf, AsOfNow, SnapshotJob
from cdc.ops.jobs.describe import describe_deployment
from cdc.spark.snapshot.folders import begun
from cdc.spark.snapshot.main import take
from cdc.spark.snapshot.manifest import Manifest
from tests.support.deployment import Deployment


@dataclass
class Snapshots:
    """Takes snapshots of a deployment's tables into a folder."""

    spark: SparkSession
    deployment: Deployment
    folder: Path
    count: int = 0

    def job(self, *tables: str, as_of: AsOf | None = None, settings: SparkSettings | None = None) -> SnapshotJob:
        """As the command describes it."""
        described = describe_deployment(load(self.deployment.config, {}), tables)
        with self.deployment.source.connect() as connection:
            lsn, now_us = source_position(connection)
        return SnapshotJob(
            spark=settings or SparkSettings(),
            kafka=described.kafka,
            stream=described.stream,
            tables=described.tables,
            as_of=as_of or AsOfNow(),
            fence=lsn,
            fence_us=now_us,
            folder=str(self.folder),
        )

    def take(self, *tables: str, as_of: AsOf | None = None) -> tuple[Manifest, dict[str, DataFrame]]:
        """The manifest, and the files' rows by table."""
        return self.run(self.job(*tables, as_of=as_of))

    def run(self, job: SnapshotJob) -> tuple[Manifest, dict[str, DataFrame]]:
        """As ``take``, of a job that was described before."""
        self.count += 1
        name = f"snapshot-{self.count}"
        with begun(self.folder, name) as place:
            manifest = take(self.spark, job, place, name)
        stored = Manifest.model_validate_json((self.folder / name / "manifest.json").read_text(encoding="utf-8"))
        assert stored == manifest
        return manifest, {
            each.table: self.spark.read.parquet((self.folder / name / each.folder).as_uri()) for each in manifest.tables
        }

    def rows(self, table: str, as_of: AsOf | None = None) -> list[Any]:
        """The rows of one table, without what is beyond its types, sorted."""
        _, found = self.take(table, as_of=as_of)
        return sorted(tuple(row)[:-1] for row in found[table].collect())
