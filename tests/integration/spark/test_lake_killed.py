"""``cdc mirror --to delta:…`` and ``iceberg:…``, killed again and again while their tables change and are altered."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from cdc.contract.jobspec.deployment import SparkSettings
from tests.integration.spark.mirrored_shop import (
    ROWS,
    SCHEMA,
    TABLES,
    Changes,
    assert_cuts,
    batches,
    last_cut,
    mirror_process,
    numbers_at,
)
from tests.integration.spark.mirrors import job_for
from tests.support.deployment import Deploy
from tests.support.servers import Database

ENDS_S: Final = 900
ALTER_EVERY: Final = 20
BATCHES: Final = int(os.environ.get("BATCHES", "200"))
"""How many batches the tables have in the end, all together."""
ROUNDS: Final = max(1, min(6, BATCHES // 30))
"""At most how many rounds one life has, about."""
VISITS: Final = MappingProxyType(
    {
        "mirror.before_table_commit": 3,
        "mirror.after_table_commit": 3,
        "mirror.after_compaction": 1,
        "mirror.before_cut": 1,
        "mirror.after_cut": 1,
    }
)
"""How often a round comes past each crash point, about."""
OF_ICEBERG: Final = MappingProxyType({"mirror.files_written": 5})
ANY_MOMENT: Final = "any moment"
"""Not a crash point: process and JVM are killed together, perhaps inside a commit."""
LIVED_S: Final = (10.0, 60.0)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_each_cut_of_a_mirror_that_is_killed_at_every_step_while_tables_are_altered_has_every_row(
    form: str, spark_settings: SparkSettings, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """Every kill leaves what the next run goes on from; each cut, from before or after, has one transaction's rows."""
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with SEED={seed} BATCHES={BATCHES}\n")
    chosen, log = random.Random(seed), (tmp_path / "mirror.log").read_text
    database.execute(SCHEMA)
    deployment = deploy(topics={"partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled(*TABLES)
    database.execute(ROWS)
    deployment.wait_published()
    changes = Changes(database, alter_every=ALTER_EVERY)
    changes.make()
    job = job_for(deployment, tmp_path / "lake", spark=spark_settings, once=False, interval_s=0)
    job = job.model_copy(update={"format": form})
    visits = {**VISITS, **(OF_ICEBERG if form == "iceberg" else {}), ANY_MOMENT: 0}
    kills = 0
    with changes.going_on():
        for point in cycle(visits):
            if kills >= len(visits) and batches(job) >= BATCHES:
                break
            if point == ANY_MOMENT:
                with mirror_process(job, tmp_path) as process, pytest.raises(subprocess.TimeoutExpired):
                    process.wait(chosen.uniform(*LIVED_S))
            else:
                visit = chosen.randint(1, ROUNDS * visits[point])
                with mirror_process(job, tmp_path, f"{point}:{visit}", is_warm=True) as process:
                    assert process.wait(ENDS_S) == -signal.SIGKILL, log()
            kills += 1
            sys.stdout.write(f"kill {kills} at {point}\n")
    exact = assert_cuts(job, changes)
    assert exact >= kills // len(visits), "each turn goes past a cut"
    deployment.wait_published()
    with mirror_process(job.model_copy(update={"once": True}), tmp_path, is_warm=True) as process:
        assert process.wait(ENDS_S) == 0, log()
    assert assert_cuts(job, changes) > exact
    assert numbers_at(job, last_cut(job)) == {len(changes.after)}
    sys.stdout.write(f"{kills} kills, {batches(job)} batches, {exact} exact cuts, {len(changes.after)} transactions\n")
    deployment.stop()
