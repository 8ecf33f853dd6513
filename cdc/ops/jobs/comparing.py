"""Turns the options of ``cdc reconcile`` into a job: which of them go together, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdc import __version__
from cdc.base import extras
from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.contract.jobspec.deployment import LakeSettings, SparkSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.describe import beside_lake, describe_deployment


def resumed(resume: bool, folder: Path | None) -> bool:
    """Returns ``--resume``, which needs a folder."""
    if resume and folder is None:
        raise ConfigError("--resume needs --report", remedy="name the folder of the interrupted run: --report FOLDER")
    return resume


def columns_of_one(where: str | None, columns: str | None, tables: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Returns the columns to compare; they, and a condition, are for a single table."""
    if (where, columns) != (None, None) and len(tables) != 1:
        raise ConfigError(
            "--where and --columns need exactly one table", remedy="name it: cdc reconcile public.orders …"
        )
    return {} if columns is None else {tables[0]: tuple(map(str.strip, columns.split(",")))}


def whole_state(state: Path | None, passes: int) -> str | None:
    """Returns the absolute path of ``--state``, which keeps hashes of whole topics."""
    if state is not None and passes > 1:
        raise ConfigError(
            "--state and --passes cannot be combined", remedy="leave one out: --state keeps hashes of whole topics"
        )
    return None if state is None else str(state.resolve())


def compared_with(replica: bool | None, lake: str | None) -> LakeSettings | bool:
    """Returns the lake that is compared, or whether the replica is; takes ``delta:/lake/shop`` apart."""
    if lake is None:
        return replica is not False
    if replica is not None:
        raise ConfigError(
            "--lake takes the place of the replica, so it cannot be combined with --replica or --no-replica",
            remedy="leave one of them out, and compare the replica in a run of its own",
        )
    system, _, path = lake.partition(":")
    if system in ("delta", "iceberg") and path:
        if system == "iceberg":
            extras.require("iceberg", "cdc reconcile --lake iceberg:DIR")
        return LakeSettings.model_validate({"system": system, "path": str(Path(path).absolute())})
    if system == "parquet" and path:
        raise ConfigError(
            "cdc reconcile cannot compare Parquet files: they have no cut, so no LSN at which they equal the source",
            remedy="mirror into Delta or Iceberg tables, and name their folder: --lake delta:DIR",
        )
    raise ConfigError(f"--lake {lake} does not name a lake", remedy="write --lake delta:DIR or iceberg:DIR")


def reconcile_job(
    config: Config,
    tables: Sequence[str],
    folder: Path | None,
    spark: SparkSettings,
    compared: LakeSettings | bool,
    options: Mapping[str, Any],
) -> ReconcileJob:
    """Describes the comparison that the command line asks for, and makes its folder."""
    run = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    place = (folder or Path(f"reconcile-{run}")).resolve()
    place.mkdir(parents=True, exist_ok=True)
    deployment = describe_deployment(config, tables)
    if isinstance(compared, LakeSettings):
        deployment = beside_lake(deployment, compared)
    return ReconcileJob(
        run=run,
        tool_version=__version__,
        spark=spark,
        kafka=deployment.kafka,
        source=deployment.source,
        replica=deployment.replica if compared else None,
        stream=deployment.stream,
        tables=deployment.tables,
        folder=str(place),
        **options,
    )
