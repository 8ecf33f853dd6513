"""What a job has to know of a replica, whichever database it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from pyspark.sql import DataFrame

from cdc.base.lsn import LSN
from cdc.base.table_names import qualified
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.table_states import IN_CUT
from cdc.spark.errors import NotCaughtUp
from cdc.spark.source.rows import TableRows


class ComparedPlace(NamedTuple):
    """The place of a table that is compared.

    Attributes:
        kind: what the report calls it.
        table: the table's name; in a lake, its folder.
        version: the version of a lake's table; None for a replica.
    """

    kind: Literal["replica", "lake"]
    table: str
    version: int | None = None


class HeldReplica(Protocol):
    """A replica at one moment: all answers are of the same commit of the sink."""

    @property
    def taken_at(self) -> float:
        """The moment, in seconds of the monotonic clock. What was deleted since is still to be seen as a tombstone."""

    @property
    def state(self) -> str:
        """Names all that was committed: under the same name a replica has the same rows. Empty if it has no names."""

    @property
    def tables(self) -> Sequence[tuple[str, str]]:
        """Schema and name of each table that is held."""

    def recorded(self, table: JobTable) -> tuple[LSN, str]:
        """Returns the LSN at which the replica equals the source, or why this table cannot be compared."""

    def place(self, table: JobTable) -> ComparedPlace:
        """Returns where a table is that can be compared."""

    def rows(self, table: JobTable, where: str | None) -> TableRows:
        """Returns a reader of a table's rows.

        Args:
            table: the table under its name in the replica.
            where: as for ``SourceRows``.
        """

    def sizes(self, tables: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Returns about how many bytes each of these tables has; those that cannot be compared together are left out.

        Args:
            tables: schema and name of tables that are exact.
        """

    def hashes_of_many(self, tables: Sequence[JobTable]) -> DataFrame:
        """Reads every row of several small tables: ``topic`` string, ``key_hash``, ``value_hash`` bigint."""


class ReplicaSide(Protocol):
    """A replica that a job compares with topics."""

    def why_not(self, table: JobTable) -> str:
        """Returns why this table cannot be compared, before anything is held; empty if it can."""

    def wait_for(self, lsn: LSN, deadline: float) -> None:
        """Wait until the replica records this LSN or a later one.

        Args:
            lsn: the LSN.
            deadline: until when, in seconds of the monotonic clock.

        Raises:
            NotCaughtUp: it did not in time.
        """

    def hold(self, tables: Sequence[tuple[str, str]], folder: Path) -> AbstractContextManager[HeldReplica]:
        """Hold one moment of a replica to the end of the block.

        Args:
            tables: schema and name of each table to read. If there is only one, a lock on it is waited for; of several,
                those that cannot be had at once are left out.
            folder: where to put what Spark reads, if it does not read the replica itself.

        Raises:
            SourceUnreadable: the replica cannot be read.
        """


def replica_place(table: JobTable) -> ComparedPlace:
    """Returns where the replica of a table is in its database."""
    assert table.replica is not None
    return ComparedPlace("replica", qualified(*table.replica))


def recorded_lsn(cut: Sequence[Any] | None, state: Sequence[Any] | None) -> tuple[LSN, str]:
    """Judges what a sink recorded.

    Args:
        cut: the row with the LSN as text, which may be NULL; None if there is no row.
        state: the row with state and reason of the table; None if there is no row.

    Returns:
        The LSN at which the replica's table equals the source, or why it cannot be compared.
    """
    if cut is None or state is None:
        return LSN(0), "the sink has not mirrored this table yet"
    if state[0] not in IN_CUT:
        return LSN(0), f"the replica's table is {state[0]}" + (f": {state[1]}" if state[1] else "")
    if cut[0] is None:
        return LSN(0), "the sink is catching up, so the replica does not know yet at which LSN it equals the source"
    return LSN.parse(cut[0]), ""


def not_reached(lsn: LSN, seconds: float) -> NotCaughtUp:
    """Returns the error of a replica that did not get to an LSN in time."""
    return NotCaughtUp(
        f"the replica did not reach {lsn} within {seconds:.0f} s",
        remedy="check with cdc status whether the sink runs, or allow more time with --fence-timeout",
    )
