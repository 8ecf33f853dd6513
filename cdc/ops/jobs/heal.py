"""Repairs what a reconciliation found: the bridge publishes the differing keys again, and a second run checks them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import typer

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.base.lsn import ZERO
from cdc.bridge.asking.repair import RepairProgress, repair_keys
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.keys_file import MAX_KEYS, keys_file, read_keys
from cdc.contract.jobspec.reconcile import ReconcileJob, RepairedKeys
from cdc.contract.record import RepairKey
from cdc.ops.jobs.answers import SOMETHING_WRONG
from cdc.ops.jobs.launch import run_job

_TIMEOUT_S: Final = 600.0


def repair_and_verify(config: Config, job: ReconcileJob, *, asks: bool) -> int:
    """Have the bridge publish the differing keys again, then compare just these keys.

    Args:
        config: the configuration of the bridge.
        job: the reconciliation that found differences, and wrote the keys to ``keys_to``.
        asks: whether to ask a person first.

    Returns:
        The exit code of the second comparison, or of the first if nothing was repaired.

    Raises:
        ConfigError: too many keys differ for a repair by key, or keys that leave as hashes.
    """
    assert job.keys_to is not None
    differing = {table: path for table in job.tables if (path := Path(keys_file(job.keys_to, table.topic))).exists()}
    keys = {table: read_keys(path) for table, path in differing.items()}
    _refuse_hashed(keys)
    _refuse_too_many({table.qualified_name: len(found) for table, found in keys.items()})
    told = ", ".join(f"{len(found):,} of {table.qualified_name}" for table, found in keys.items())
    if asks and not _agreed(f"have the bridge publish these keys again: {told}?"):
        return SOMETHING_WRONG
    repaired, lsn = {}, ZERO
    for table, found in keys.items():
        result = repair_keys(
            config,
            table.qualified_name,
            [RepairKey(each.key, each.partition) for each in found],
            timeout_s=_TIMEOUT_S,
            tell=_tell(table),
        )
        lsn = max(lsn, result.lsn)
        repaired[table.qualified_name] = RepairedKeys(
            keys=len(found), rows=result.rows, tombstones=result.tombstones, touched=result.touched
        )
    again = {
        "folder": str(Path(job.folder) / "after-repair"),
        "tables": tuple(keys),
        "keys": {table.qualified_name: str(path) for table, path in differing.items()},
        "repaired": repaired,
        "replica_lsn": str(lsn),
        "keys_to": None,
        "certificate": None,
        "resume": False,
        "passes": 1,
    }
    return run_job("reconcile", job.model_copy(update=again))


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question)
    except typer.Abort:  # standard input is closed: nobody can agree, so repair nothing
        return False


def _refuse_hashed(tables: Iterable[JobTable]) -> None:
    hashed = [
        each.qualified_name
        for each in tables
        if any(column.mask == "sha256" and column.name in each.key for column in each.columns)
    ]
    if hashed:
        raise ConfigError(
            f"the keys of {', '.join(hashed)} leave as hashes, which do not tell which rows to read",
            remedy=f"publish the whole table again: cdc backfill {shlex.join(hashed)} --sweep",
        )


def _refuse_too_many(counts: dict[str, int]) -> None:
    too_many = [table for table, count in counts.items() if count > MAX_KEYS]
    if too_many:
        raise ConfigError(
            f"more than {MAX_KEYS:,} keys differ in {', '.join(too_many)}",
            remedy=f"publish the whole table again: cdc backfill {shlex.join(too_many)} --sweep",
        )


def _tell(table: JobTable) -> Callable[[RepairProgress], None]:
    def tell(progress: RepairProgress) -> None:
        sys.stderr.write(f"{table.qualified_name}: {progress.done:,} of {progress.keys:,} keys published again\n")

    return tell
