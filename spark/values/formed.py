"""Refuses topics whose values are in other forms than JSON has by default: the section ``values``."""

from __future__ import annotations

from collections.abc import Iterable

from cdc.contract.record import TableSchema
from cdc.spark.errors import JobError


def refuse_forms(definitions: Iterable[TableSchema]) -> None:
    """Refuse a topic some of whose values are, or were, in another form.

    Raises:
        JobError: it is one.
    """
    for each in definitions:
        if each.is_formed:
            raise JobError(
                f"topic {each.topic} holds values in forms that the section values chose, which Spark's jobs do not "
                "read yet",
                remedy="run the job on topics in the default form: those of another bridge, without the section values",
            )
