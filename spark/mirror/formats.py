"""Opens lakes by the names of their formats, and says what a Spark session needs for each."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import KEEP_DAYS
from cdc.spark.mirror.delta_sql import SESSION, DeltaLake
from cdc.spark.mirror.versioned import VersionedFormat

FormatOfVersions: TypeAlias = Literal["delta", "iceberg"]

_SIGNS: Final = MappingProxyType({"delta": "_delta_log/*.json", "iceberg": "metadata/*.metadata.json"})


def format_of(spark: SparkSession, system: FormatOfVersions, root: Path, keep_days: int = KEEP_DAYS) -> VersionedFormat:
    """Returns the tables of a lake.

    Args:
        spark: a session with ``with_format``.
        system: the format.
        root: the lake's folder.
        keep_days: for how many days whoever writes keeps former versions.

    Raises:
        JobError: the folder holds something else.
    """
    if system == "iceberg":
        # Imported here, because its library comes with an extra
        from cdc.spark.mirror.iceberg import IcebergLake

        return IcebergLake(spark, root)
    return DeltaLake(spark, root, keep_days)


def with_format(settings: SparkSettings, system: FormatOfVersions) -> SparkSettings:
    """Returns the settings of a session that can read and write these tables."""
    if system == "iceberg":  # whose files Spark reads as Parquet
        return settings
    return settings.model_copy(update={"conf": {**SESSION, **settings.conf}})


def looks_like_table(folder: Path, system: FormatOfVersions) -> bool:
    """Tells whether a folder has a table of a format, without a session."""
    return any(folder.glob(_SIGNS[system]))
