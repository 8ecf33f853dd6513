"""Records → COPY text. This is the sink's hot path, so it works on whole blocks of rows wherever it can.

Theory of operation. A block of rows is read in the value format, joined and escaped as one text. Then tabs and line
ends are counted. If there are only as many as separators, no value contains one, and only backslashes have to be
escaped. Otherwise the block is joined again, with markers for separators. The markers begin with NUL, which no
PostgreSQL text contains; they become tabs and line ends after those in the values were escaped. A block with an unusual
value is read row by row. Rows that the reader can render directly (``RowReader.lines``) skip all of this.

https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-FILE-FORMATS
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from cdc.base.errors import DecodeError
from cdc.base.lsn import ZERO
from cdc.contract.formats.format import NULL, ReadColumn, ValueFormat
from cdc.contract.formats.json_format import JSON
from cdc.contract.header import header_position
from cdc.contract.ports import StoredRecord
from cdc.contract.record import Position
from cdc.sink.topic_rows import RowTexts, names_null_documents

_ROWS_PER_BLOCK: Final = 1_000
_FIELD, _ROW = "\0t", "\0n"


class RowForm:
    """Renders records as rows.

    Args:
        columns: the columns of a row, in order.
        others: members that records may have and that are left out.
        definitions: column names by fingerprint; the header names columns by their number (``json_null``).
        is_positioned: begin each row with its record's LSN and seq.
        value_format: the format of keys and values.
    """

    def __init__(
        self,
        columns: Sequence[ReadColumn],
        others: Sequence[str] = (),
        definitions: Mapping[str, Sequence[str]] | None = None,
        *,
        is_positioned: bool = False,
        value_format: ValueFormat = JSON,
    ) -> None:
        self._is_positioned = is_positioned
        self._texts = RowTexts(columns, others, definitions, value_format=value_format)

    def blocks(self, records: Sequence[StoredRecord], of_key: bool = False) -> Iterator[bytes]:
        """Yields COPY text of the records' values, or of their keys. Within a block, the order of rows is arbitrary.

        Raises:
            RecordRejected: a record is not a row of these columns, or PostgreSQL's text cannot hold a value.
        """
        rest = iter(records)
        while block := list(islice(rest, _ROWS_PER_BLOCK)):
            yield self._block(block, of_key)

    def _block(self, records: list[StoredRecord], of_key: bool) -> bytes:
        if self._is_positioned or (not of_key and names_null_documents(records)):
            return self._text(records, self._texts.rows(records, of_key=of_key))
        text, left = self._texts.lines(records, of_key=of_key)
        if not left:
            return text
        rest = [records[place] for place in left]
        return text + self._text(rest, self._texts.rows(rest, of_key=of_key))

    def _text(self, records: Sequence[StoredRecord], rows: Sequence[Sequence[str]]) -> bytes:
        if self._is_positioned:
            positions = [position_of(record) for record in records]
            rows = [(str(at.lsn), str(at.seq), *row) for at, row in zip(positions, rows, strict=True)]
        return _copy_text(rows)


def position_of(record: StoredRecord) -> Position:
    """Returns the record's position. A record that the bridge did not write counts as older than all others."""
    try:
        return header_position(record.header)
    except DecodeError:
        return Position(ZERO, 0)


def _copy_text(rows: Sequence[Sequence[str]]) -> bytes:
    text = "\n".join(map("\t".join, rows)) + "\n"
    separators = len(rows), len(rows) * (len(rows[0]) - 1)
    if (text.count("\n"), text.count("\t")) == separators and "\r" not in text:
        return text.replace("\\", "\\\\").replace(NULL, "\\N").encode()
    text = _ROW.join(map(_FIELD.join, rows)) + _ROW
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return text.replace(_FIELD, "\t").replace(_ROW, "\n").replace(NULL, "\\N").encode()
