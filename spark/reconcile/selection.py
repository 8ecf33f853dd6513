"""Checks what a run was asked to compare: it must exist, and comparing nothing never counts as identical. Pure."""

from __future__ import annotations

import difflib

from cdc.contract.jobspec.deployment import FileSettings, JobTable, LakeSettings, MariadbSettings, PostgresSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError


def refuse_unknown(job: ReconcileJob) -> None:
    """Stops a run that asks for something that does not exist, before anything is read.

    Raises:
        JobError: there is no table to compare, a table lacks a column that was asked for, or the replica cannot be
            asked a condition.
    """
    if not job.tables:
        raise JobError("there is no table to compare", remedy="see what is captured with cdc tables list")
    if job.where is not None and not isinstance(job.replica, PostgresSettings | None):
        raise JobError(
            f"--where is a condition in PostgreSQL's SQL, which {_said(job.replica)} does not understand",
            remedy="compare source and topic alone, "
            f"{'without --lake' if isinstance(job.replica, LakeSettings) else '--no-replica'}; or leave --where out",
        )
    tables = {each.qualified_name: each for each in job.tables}
    for name, asked in job.columns.items():
        if name not in tables:
            raise JobError(f"--columns names {name}, which is not compared", remedy=f"name the table, too: {name}")
        known = [each.name for each in tables[name].columns]
        for column in asked:
            if column not in known:
                near = difflib.get_close_matches(column, known, n=3) or known
                raise JobError(
                    f"--columns: {name} has no published column {column!r}", remedy=f"did you mean {', '.join(near)}?"
                )


def _said(replica: MariadbSettings | FileSettings | LakeSettings) -> str:
    return f"the {'lake' if isinstance(replica, LakeSettings) else 'replica'} {replica.address}"


def only_compared(job: ReconcileJob, table: JobTable) -> tuple[str, ...]:
    """Returns the columns of a table to compare: those asked for, or all."""
    return job.columns.get(table.qualified_name) or tuple(each.name for each in table.columns)


def why_nothing(job: ReconcileJob, rows: int) -> str:
    """Returns why a comparison without differences compared nothing at all; empty if it compared something.

    Args:
        job: the run.
        rows: how many rows of the source were to be compared.
    """
    if job.where is not None and not rows:
        return f"the condition {job.where} holds for no row of the source, so nothing was compared"
    return ""
