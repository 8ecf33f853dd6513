"""Two mirrors into one Delta or Iceberg lake."""

from __future__ import annotations

import subprocess
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.cut_log import NAME
from cdc.spark.mirror.formats import FormatOfVersions, looks_like_table
from cdc.spark.mirror.main import mirror
from tests.integration.spark.lake_tables import cuts_in
from tests.integration.spark.mirrored_shop import (
    TABLES,
    Changes,
    assert_cuts,
    assert_equal,
    batches,
    mirror_process,
)
from tests.integration.spark.mirrors import job_for, run
from tests.integration.spark.test_delta import shop
from tests.support.deployment import Deployment
from tests.support.waiting import eventually

__all__ = ["shop"]

pytestmark = [pytest.mark.long, pytest.mark.pg(16, matrix=False), pytest.mark.timeout(1800)]

ENDS_S: Final = 900
FORMATS: Final = ["delta", "iceberg"]
ANOTHER: Final = "another process writes into"


def mirror_job(deployment: Deployment, lake: Path, form: FormatOfVersions, **changes: Any) -> MirrorJob:
    return job_for(deployment, lake).model_copy(update={"format": form, **changes})


def mirror_beside(spark: SparkSession, job: MirrorJob, first: subprocess.Popen[bytes]) -> str:
    """Mirrors on in this process until it is refused, or until the other mirror ends; returns the refusal."""
    stop = Event()

    def watch() -> None:
        first.wait()
        stop.set()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        mirror(spark, job, stop)
    except JobError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", FORMATS)
def test_of_two_mirrors_one_is_refused_and_without_the_lock_one_ends(
    form: FormatOfVersions, spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path
) -> None:
    """A network file system may not keep the lock; then the commits decide, and no row is wrong or doubled."""
    lake, other, log = tmp_path / "lake", tmp_path / "other path", (tmp_path / "mirror.log").read_text
    changes = Changes(shop.source)
    changes.make()
    job = mirror_job(shop, lake, form, spark=spark_settings, once=False, interval_s=0)
    with mirror_process(job, tmp_path) as first:
        eventually(lambda: looks_like_table(lake / NAME, form) and bool(cuts_in(job)), ENDS_S)
        other.symlink_to(lake)
        for path in (lake, other) if form == "delta" else (lake,):
            with pytest.raises(JobError, match="another process mirrors into") as refused:
                run(spark, job.model_copy(update={"path": str(path), "once": True}))
            assert refused.value.remedy == "stop it first"
        assert first.poll() is None
        (lake / ".lock").unlink()
        with changes.going_on():
            said = mirror_beside(spark, job, first)
        if not said:
            assert first.wait(ENDS_S) == 2
            said = log()
        assert ANOTHER in said
    shop.wait_published()
    run(spark, job.model_copy(update={"once": True}))
    assert_equal(shop, job)
    assert assert_cuts(job, changes) >= 2
    assert batches(job) >= len(TABLES)
    shop.stop()
