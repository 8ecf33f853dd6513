"""What a reconciliation after a repair waits for: the replica, which a sink brings there or does not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import PostgresSettings, SparkSettings
from cdc.spark.errors import NotCaughtUp
from cdc.spark.reconcile.replica_run import RepairedReplica
from cdc.spark.replicas.postgres import PostgresSide
from tests.support.deployment import Deploy
from tests.support.reconciling import job_for
from tests.support.servers import Database


@pytest.mark.pg(16, matrix=False)
def test_a_sink_that_stands_still_holds_up_a_run_once(deploy: Deploy, database: Database, tmp_path: Path) -> None:
    """However many tables there are."""
    database.execute("CREATE TABLE thing (id int PRIMARY KEY)")
    no_spark: Any = None  # to ask where a replica is needs none
    deployment = deploy()
    deployment.start()
    lsn = deployment.wait_mirrored()
    deployment.stop()

    def wait(repaired: RepairedReplica) -> float:
        started = time.monotonic()
        with pytest.raises(NotCaughtUp, match=r"the replica did not reach .* within 2 s"):
            repaired.wait()
        return time.monotonic() - started

    def after(position: LSN) -> RepairedReplica:
        job = job_for(deployment, tmp_path, SparkSettings(), replica_lsn=str(position), fence_timeout_s=2)
        assert isinstance(job.replica, PostgresSettings)
        return RepairedReplica(job, PostgresSide(no_spark, job, job.replica))

    after(lsn).wait()
    never = after(LSN(lsn + 2**40))
    first, *others = (wait(never) for _ in range(3))
    assert sum(others) < 2 <= first
