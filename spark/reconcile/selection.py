"""What a run was asked to compare: refused when it names what is not there, never equal when it is nothing. Pure."""

from __future__ import annotations

import difflib

from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError


def refuse_unknown(job: ReconcileJob) -> None:
    """Stop before anything is looked at.

    Raises:
        JobError: there is no table to compare, or a column was asked for that its table does not have.
    """
    if not job.tables:
        raise JobError("there is no table to compare", remedy="see what is captured (cdc tables list)")
    tables = {each.qualified_name: each for each in job.tables}
    for name, asked in job.columns.items():
        if name not in tables:
            raise JobError(f"--columns of {name}, which is not compared", remedy=f"name that table: {name}")
        known = [each.name for each in tables[name].columns]
        for column in asked:
            if column not in known:
                near = difflib.get_close_matches(column, known, n=3) or known
                raise JobError(
                    f"--columns: {name} has no published column {column!r}", remedy=f"did you mean {', '.join(near)}?"
                )


def only_compared(job: ReconcileJob, table: JobTable) -> tuple[str, ...]:
    """The columns to compare of a table: all, or those asked for."""
    return job.columns.get(table.qualified_name) or tuple(each.name for each in table.columns)


def why_nothing(job: ReconcileJob, rows: int) -> str:
    """Why a comparison that found no difference compared nothing that was asked for; empty when it did.

    Args:
        job: the run.
        rows: of the source, that were to be compared.
    """
    if job.where is not None and not rows:
        return f"the condition {job.where} holds for no row of the source, so nothing was compared"
    return ""
