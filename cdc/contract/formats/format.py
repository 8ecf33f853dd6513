"""The interface of JSON's format: how rows become the bytes of keys and values, and how these become texts again.

A format is asked for writers and readers when an encoder or a reader is made, never for each row: the hot path calls
these directly. Keys are JSON whatever the values are, and values in another format become such objects before they are
read (``opener.py``). Every format of values has to pass ``tests/property/test_value_format.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from cdc.contract.change import Column, Row

NULL: Final = "\0N"
"""Stands for NULL in texts that were read. PostgreSQL's text values contain no NUL, so no value looks like it."""

NOT_ENCODABLE: Final = (TypeError, AttributeError, KeyError, ValueError, IndexError)
"""The exceptions that ``RowWriter.encode`` raises for a row that it cannot encode."""


class RowWriter(Protocol):
    """Encodes rows of certain columns, as values or as keys."""

    @property
    def bare_template(self) -> bytes | None:
        """A template with which ``template % cells`` encodes rows without NULLs; None if it takes more than that."""

    @property
    def compiled(self) -> Any:
        """A ``RowWriter`` in C (``_objects.pyx``) that writes the same bytes; None if there is none."""

    def encode(self, row: Row) -> bytes:
        """Returns the bytes of a row.

        Raises:
            NOT_ENCODABLE: a cell was not sent or does not have its type's form, or the row has another width.
        """

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the places of JSON documents ``null``, which look like NULL, so that the header must name them."""

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text in that column cannot be encoded; empty if it can."""


class ReadColumn(NamedTuple):
    """A column to read: ``sql_type`` as ``__schemas`` spells it, ``delimiter`` between its array elements."""

    name: str
    sql_type: str
    delimiter: str


class RowReader(Protocol):
    """Reads what a ``RowWriter`` wrote, as texts that PostgreSQL reads as the same values; ``NULL`` stands for NULL."""

    def block(self, sources: Sequence[bytes | None], *, are_keys: bool) -> Sequence[Sequence[str]] | None:
        """Read many rows at once; None if one of them needs ``row``."""

    def lines(self, sources: Sequence[bytes | None], *, are_keys: bool) -> tuple[bytes, Sequence[int]]:
        """Returns COPY text of the rows that can be read fast, and the places of all others."""

    def row(self, source: bytes | None, null_documents: Collection[str]) -> Sequence[str]:
        """Read one row, whatever shape its values have.

        Args:
            source: the bytes of a key or a value.
            null_documents: columns in which NULL stands for the document ``null``.

        Raises:
            ValueError: not such a row, or PostgreSQL's text cannot hold a value; the message says what is wrong.
        """


class ValueFormat(Protocol):
    """A format for keys and values."""

    def writer(self, columns: Sequence[Column]) -> RowWriter:
        """Make a writer for rows of these columns of the stream."""

    def reader(self, columns: Sequence[ReadColumn], others: Sequence[str] = ()) -> RowReader:
        """Make a reader for rows with these columns; a column that a row does not have is NULL.

        Args:
            columns: the columns to read, in the order of the texts.
            others: further columns that rows may have and the reader leaves out.
        """

    def key_texts(self, columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
        """Returns texts to cast to the columns' types; None if the bytes are not a key of these columns."""

    def members(self, key: bytes) -> frozenset[str] | None:
        """Returns the names of a key's columns, whichever they are; None if the bytes are not a key."""
