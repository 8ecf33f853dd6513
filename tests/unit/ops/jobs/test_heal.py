"""What a repair refuses before it asks the bridge for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.jobspec.deployment import JobColumn, JobTable, KafkaSettings, PostgresSettings, SparkSettings, Stream
from cdc.contract.jobspec.keys_file import MAX_KEYS, RepairableKey, keys_file, write_keys
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.heal import repair_and_verify


def found(folder: Path, keys: int, *columns: JobColumn) -> ReconcileJob:
    """A reconciliation that found so many keys in which the table differs."""
    table = JobTable(namespace="public", name="guest", topic="t.public.guest", key=("email",), columns=columns)
    write_keys(Path(keys_file(str(folder), table.topic)), [RepairableKey(b"%d" % n, None) for n in range(keys)])
    return ReconcileJob(
        run="r",
        tool_version="1",
        spark=SparkSettings(),
        kafka=KafkaSettings(options={"bootstrap.servers": "127.0.0.1:1"}),
        source=PostgresSettings(host="127.0.0.1", port=1, database="d", user="u"),
        stream=Stream(name="t", slot="cdc_t"),
        tables=(table,),
        folder=str(folder),
        keys_to=str(folder),
    )


@pytest.mark.parametrize(
    ("keys", "mask", "said"),
    [
        (1, "sha256", "the keys of public.guest leave as hashes, which do not tell which rows to read"),
        (MAX_KEYS + 1, "", "more than 100,000 keys differ in public.guest"),
    ],
)
def test_a_repair_by_key_that_cannot_be(tmp_path: Path, keys: int, mask: Any, said: str) -> None:
    job = found(tmp_path, keys, JobColumn(name="email", sql_type="text", kind="text", mask=mask))
    nothing: Any = None  # the configuration is not asked for
    with pytest.raises(ConfigError, match=said) as refused:
        repair_and_verify(nothing, job, asks=False)
    assert refused.value.remedy == "publish the whole table again: cdc backfill public.guest --sweep"
