"""What the mirror asks of a table format whose commits have versions and can carry a text; Delta and Iceberg do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

OTHER_FOLDER: Final = "name another folder"
MARKS: Final = "cdc."
"""The properties by which a mirror knows its own tables begin so."""


class VersionedTable(Protocol):
    """One table. A method that changes rows makes one commit, which carries the text ``tells`` and has a number.

    A number is used once. If another process has used it, or wrote in the same moment, the change is not made.

    Raises:
        JobError: another process changed rows.
    """

    @property
    def folder(self) -> Path:
        """The folder where the table is, or will be."""

    def exists(self) -> bool:
        """Tells whether there is a table; one that was killed while it made its first commit is none."""

    def is_taken(self) -> bool:
        """Tells whether the folder holds something that is not a table."""

    def properties(self) -> Mapping[str, str]:
        """Returns the table's properties."""

    def columns(self) -> Mapping[str, str]:
        """Returns the Spark type of each column."""

    def types_of(self, schema: StructType) -> Mapping[str, str]:
        """Returns the types that ``columns`` would tell if the table had these columns."""

    def rows(self) -> DataFrame:
        """Returns the newest rows."""

    def rows_at(self, version: int) -> DataFrame:
        """Returns the rows of a version, with the columns that it had.

        Raises:
            PySparkException, ValueError, FileNotFoundError: the version, or a file of it, is not there any longer.
        """

    def commits(self) -> Iterator[tuple[int, str | None]]:
        """Yields versions and what their commits tell, newest first."""

    def committed(self, since: int) -> int:
        """Returns the version that this process's last change made; ``since`` if it had nothing to do.

        Args:
            since: the version that the process knew before.

        Raises:
            JobError: another process changed rows between the two.
        """

    def changes_of_others(self) -> Collection[str]:
        """Returns what others did to the rows since the last commit that tells something, as far as the format knows.

        Packing the same rows into other files does not count.
        """

    def create(self, schema: StructType, properties: Mapping[str, str], tells: str) -> None:
        """Makes the table, without rows."""

    def alter(self, schema: StructType, tells: str) -> bool:
        """Adds the columns that the table lacks; tells whether it made a commit."""

    def append(self, rows: DataFrame, tells: str, number: int) -> None:
        """Adds rows. ``number`` is higher than that of each commit before."""

    def merge(self, changes: DataFrame, tells: str, number: int) -> None:
        """Replaces the rows whose keys ``changes`` has, in its form: without those that it says are deleted."""

    def replace(self, rows: DataFrame, tells: str, number: int) -> None:
        """Puts these rows and columns in the place of all that the table has."""

    def delete(self, condition: str, tells: str, number: int | None = None) -> None:
        """Removes the rows that meet a condition in Spark's SQL. With a number, what the commit tells counts."""

    def compact(self, tells: str) -> None:
        """Packs small files into few, if there are any."""

    def tell(self, tells: str, number: int) -> bool:
        """Tells once more what was told long ago, where a format would forget it; tells whether it made a commit."""

    def tend(self, needed: Collection[int]) -> None:
        """Removes old versions, except those that are needed, and files that no version needs."""


class VersionedFormat(Protocol):
    """The tables of one format in one folder.

    Attributes:
        name: what people call the format.
        tend_every_ms: how often to remove what is old.
        cuts_kept: at most how many cuts to keep beside those of the last hour; None for all.
    """

    @property
    def name(self) -> str: ...
    @property
    def tend_every_ms(self) -> int: ...
    @property
    def cuts_kept(self) -> int | None: ...

    def table(self, name: str) -> VersionedTable:
        """Returns the table of this name, whether it exists or not. Nothing is written."""

    def open(self) -> None:
        """Makes what all tables need. The folder is this process's alone by then."""

    def close(self) -> None:
        """Lets go of what ``open`` made."""
