"""Reconciliations for tests: the command as a user runs it, or the job inside of a session that is open already."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc.cli.options import load_config
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.describe import describe_deployment
from cdc.spark.reconcile.main import reconcile
from cdc.spark.report.model import Report, TableReport
from tests.support.commands import cdc
from tests.support.deployment import Deployment


def job_for(
    deployment: Deployment, folder: Path, settings: SparkSettings, tables: Sequence[str] = (), **options: Any
) -> ReconcileJob:
    """The job that the command would start."""
    described = describe_deployment(load_config(deployment.config), tables)
    return ReconcileJob(
        run=folder.name,
        tool_version="test",
        spark=settings,
        kafka=described.kafka,
        source=described.source,
        replica=options.pop("replica", described.replica),
        stream=described.stream,
        tables=described.tables,
        folder=str(folder),
        **options,
    )


def reconciled(job: ReconcileJob, spark: SparkSession) -> Report:
    """Run it in this process and session."""
    return reconcile(job, contextlib.nullcontext(spark))


def run_command(
    deployment: Deployment, folder: Path, *arguments: str, timeout_s: float = 900, own_jvm: bool = False
) -> tuple[int, str]:
    """``cdc reconcile``: exit code, and all that it said; ``own_jvm`` as in ``commands.cdc``."""
    where = ("-c", deployment.config, "--report", folder)
    done = cdc("reconcile", *where, *arguments, own_jvm=own_jvm, timeout_s=timeout_s)
    return done.returncode, done.stdout + done.stderr


def table_of(report: Report, name: str) -> TableReport:
    """The part of a table."""
    return next(each for each in report.tables if each.table == name)
