"""The seam of value formats: how rows become the bytes of keys and values, and how texts come back from those.

A format is asked when an encoder or a reader is made, never row by row: what it hands out is called in the hot path
itself, with nothing between. JSON (``json_format.py``) is the one that there is; all of them pass one test class,
``tests/property/test_value_format.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from cdc.contract.change import Column, Row

NULL: Final = "\0N"
"""Stands for NULL in texts that were read. No text value of PostgreSQL has a NUL, so nothing else looks like it."""

NOT_ENCODABLE: Final = (TypeError, AttributeError, KeyError, ValueError, IndexError)
"""What ``RowWriter.encode`` raises for a row that it cannot carry."""


class RowWriter(Protocol):
    """Writes rows of certain columns, as values or as keys."""

    @property
    def bare_template(self) -> bytes | None:
        """What alone makes the bytes of cells that are not NULL, ``template % cells``; None when more is needed."""

    @property
    def compiled(self) -> Any:
        """An ``ObjectWriter`` in C (``_objects.pyx``) that writes the same bytes; None when there is none."""

    def encode(self, row: Row) -> bytes:
        """The bytes of a row.

        Raises:
            NOT_ENCODABLE: a cell was not sent, its text is not of its type's form, or the row has another width.
        """

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Places of JSON documents ``null`` that are written as NULL is, so that the record's header has to tell."""

    def problem(self, place: int, cell: bytes) -> str:
        """Why this text of that column cannot be carried; empty when it can."""


class ReadColumn(NamedTuple):
    """A column to read: ``sql_type`` as ``__schemas`` spells it, ``delimiter`` of its array elements."""

    name: str
    sql_type: str
    delimiter: str


class RowReader(Protocol):
    """Reads what a ``RowWriter`` wrote: texts that PostgreSQL reads as the same values, ``NULL`` among them."""

    def block(self, sources: Sequence[bytes | None], *, are_keys: bool) -> Sequence[Sequence[str]] | None:
        """Many rows at once; None when one of them has to be looked at by itself."""

    def lines(self, sources: Sequence[bytes | None], *, are_keys: bool) -> tuple[bytes, Sequence[int]]:
        """COPY text of rows that a quick way is there for, and the places of all others."""

    def row(self, source: bytes | None, null_documents: Collection[str]) -> Sequence[str]:
        """One row, whatever shape its values have.

        Args:
            source: a key's or a value's bytes.
            null_documents: columns in which NULL stands for the document ``null``.

        Raises:
            ValueError: not such a row, or a value that no text of PostgreSQL can hold; says what is wrong.
        """


class ValueFormat(Protocol):
    """A way to write keys and values."""

    def writer(self, columns: Sequence[Column]) -> RowWriter:
        """For rows of these columns of the stream."""

    def reader(self, columns: Sequence[ReadColumn], others: Sequence[str] = ()) -> RowReader:
        """For rows with these columns, in the order of the texts; a column that a row does not have is NULL.

        Args:
            columns: to read.
            others: further columns that rows may have and that are left out.
        """

    def key_texts(self, columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
        """Texts to cast to the columns' types; None for bytes that are no key of these columns."""

    def members(self, key: bytes) -> frozenset[str] | None:
        """Names of a key's columns, whichever they are; None for bytes that are no key."""
