"""Records → COPY text. The sink's hot path: everything that can be done for a batch is done for a batch.

Theory of operation. A block of values is decoded row by row, rendered column by column, and joined and escaped as one
text. Tabs and line ends are counted: as many as separators means that no value has one, and escaping backslashes is
all that is left to do. Otherwise the block is joined again with markers that begin with NUL, which no PostgreSQL text
contains, and they become separators after the values' own tabs and line ends were escaped. A value that has an escaped
NUL, or another shape than its column promises, takes the slow way, row by row, which finds out what is wrong.

https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-FILE-FORMATS
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from cdc.contract.header import header_position, parse_header
from cdc.errors import DecodeError
from cdc.lsn import ZERO
from cdc.ports import StoredRecord
from cdc.record import Position
from cdc.sink.errors import RecordRejected
from cdc.sink.forms import NULL, any_text, form_of

_ROWS_PER_BLOCK: Final = 1_000
_FIELD, _ROW = "\0t", "\0n"
_ESCAPED_NUL: Final = b"\\u0000"
_ESCAPED_NAME: Final = re.compile(r'["\\\x00-\x1f]')
_NULL_DOCUMENT: Final = b";json_null="
_ABSENT: Final = {msgspec.Raw: msgspec.Raw(b"null")}
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class FormedColumn(NamedTuple):
    """A column to render: ``sql_type`` as ``__schemas`` spells it, ``delimiter`` of its array elements."""

    name: str
    sql_type: str
    delimiter: str


class RowForm:
    """Renders JSON objects with these members as rows of these columns; a member that is missing is NULL.

    Args:
        columns: in the order of the rows.
        others: members that records may have and that are left out.
        definitions: columns by fingerprint: headers count them (``json_null``).
        is_positioned: each row begins with its record's LSN and seq.
    """

    def __init__(
        self,
        columns: Sequence[FormedColumn],
        others: Sequence[str] = (),
        definitions: Mapping[str, Sequence[str]] | None = None,
        *,
        is_positioned: bool = False,
    ) -> None:
        self._is_positioned = is_positioned
        self._columns = tuple(columns)
        self._definitions = definitions or {}
        self._known = {column.name for column in columns}.union(others)
        forms = [form_of(column.sql_type, column.delimiter) for column in columns]
        self._renderers = [form.render for form in forms]
        # Field names are ours, since a column may be called anything.
        members = [*(column.name for column in columns), *others]
        # msgspec takes no name that JSON escapes. A name longer than any identifier stands in: the real one is then
        # unknown to the decoder, and all rows take the slow way.
        names = {f"c{i}": f"{i:_>70}" if _ESCAPED_NAME.search(name) else name for i, name in enumerate(members)}
        accepted = [*(form.accepts for form in forms), *[msgspec.Raw] * len(others)]
        fields = [(field, accepts, _ABSENT.get(accepts)) for field, accepts in zip(names, accepted, strict=True)]
        struct = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode

    def blocks(self, records: Sequence[StoredRecord], of_key: bool = False) -> Iterator[bytes]:
        """COPY text of the records' values, or of their keys.

        Raises:
            RecordRejected: one is not such an object, or has a value that no text of PostgreSQL can hold.
        """
        rest = iter(records)
        while block := list(islice(rest, _ROWS_PER_BLOCK)):
            yield self._block(block, of_key)

    def _block(self, records: list[StoredRecord], of_key: bool) -> bytes:
        sources: list[Any] = [record.key if of_key else record.value for record in records]
        try:
            joined = b"".join(sources)
            # No key column is NULL: there, null can only be a document.
            null = b":null" in joined if of_key else _NULL_DOCUMENT in b"".join([record.header for record in records])
            if null or _ESCAPED_NUL in joined:
                rows = self._one_by_one(records, sources, of_key)
            else:
                decode = self._decode
                columns = zip(*[astuple(decode(source)) for source in sources], strict=True)
                rendered = [render(values) for render, values in zip(self._renderers, columns, strict=False)]
                rows = list(zip(*rendered, strict=True))
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
            rows = self._one_by_one(records, sources, of_key)
        if self._is_positioned:
            positions = [position_of(record) for record in records]
            rows = [(str(at.lsn), str(at.seq), *row) for at, row in zip(positions, rows, strict=True)]
        return _copy_text(rows)

    def _one_by_one(
        self, records: list[StoredRecord], sources: list[bytes | None], of_key: bool = False
    ) -> list[Sequence[str]]:
        """The slow way: by the shape of each value."""
        rows: list[Sequence[str]] = []
        for record, source in zip(records, sources, strict=True):
            try:
                nulls = self._known if of_key else self._null_documents(record.header)
                rows.append(self._fields(source, nulls))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise RecordRejected(record, f"cannot be read as JSON: {error}") from error
            except (ValueError, DecodeError) as error:
                raise RecordRejected(record, str(error)) from error
        return rows

    def _null_documents(self, header: bytes) -> Collection[str]:
        """Columns whose ``null`` is the JSON document and not NULL."""
        if _NULL_DOCUMENT not in header:
            return ()
        parsed = parse_header(header)
        names = self._definitions.get(parsed.schema)
        if names is None or max(parsed.json_null) >= len(names):
            raise ValueError(f"the header names definition {parsed.schema}, which the schemas topic does not have")
        return [names[place] for place in parsed.json_null]

    def _fields(self, source: bytes | None, null_documents: Collection[str]) -> list[str]:
        if not source:
            raise ValueError("the value is empty; only a tombstone, a record without a value, deletes")
        if source == b"null":
            raise ValueError("the value is the JSON word null; only a tombstone, a record without a value, deletes")
        members = _decode_members(source)
        if unknown := members.keys() - self._known:
            raise ValueError(
                f"the value has members that no definition in the schemas topic knows: {', '.join(sorted(unknown))}"
            )
        fields = []
        for name, sql_type, delimiter in self._columns:
            member = members.get(name)
            text = NULL if member is None else any_text(member, sql_type, delimiter)
            if text == NULL and name in null_documents:
                text = "null"
            if text != NULL and "\0" in text:
                raise ValueError(f"column {name!r} has a NUL character, which no PostgreSQL text can hold")
            fields.append(text)
        return fields


def position_of(record: StoredRecord) -> Position:
    """Where the record says it stands; what is not the bridge's stands before everything."""
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
