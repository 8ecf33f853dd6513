"""A topic's records → what its replica table is to hold: which records count, and the texts of their columns.

Every database takes rows from here, and makes its own values of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cdc.base.errors import DecodeError
from cdc.contract.formats.format import NULL, ReadColumn, ValueFormat
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.header import is_of_no_row, parse_header, schema_of
from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.sink.definitions import former_definitions, former_keys
from cdc.sink.rejections import RecordRejected

_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final[Mapping[str, str]] = {"n": "\n", "r": "\r", "t": "\t"}
_NULL_DOCUMENT: Final = b";json_null="


class TopicRecords:
    """Chooses the records of a topic that say what its table is to hold.

    Args:
        schemas: every definition of the topic, the newest last.
    """

    def __init__(self, schemas: Sequence[TableSchema]) -> None:
        self._former_keys, self._former_definitions = former_keys(schemas), former_definitions(schemas)
        self._opener, self._keys = ValueOpener(schemas), TopicKeys(schemas)

    def newest(self, records: Sequence[StoredRecord]) -> tuple[list[StoredRecord], list[StoredRecord]]:
        """Returns the last record of each key: tombstones with keys in JSON, and upserts with rows in JSON.

        Args:
            records: in the order of each partition.

        Raises:
            RecordRejected: a record has no key, or is not what its definition says.
        """
        last = _last_of_each_key(records)
        if self._former_definitions:
            last = {key: record for key, record in last.items() if not self._is_former(key, record.header)}
        # Not those that remove only a record which another program wrote: the key's row is still there
        tombstones = [each for each in last.values() if each.value is None and not is_of_no_row(each.header)]
        upserts = [record for record in last.values() if record.value is not None]
        if self._opener.is_needed:
            upserts = [self._opened(record) for record in upserts]
            # An envelope may say that its row was deleted; its tombstone comes with the next batch
            tombstones += [each for each in upserts if each.value is None]
            upserts = [each for each in upserts if each.value is not None]
        if self._keys.is_needed:
            tombstones = [self._with_key_in_json(record) for record in tombstones]
        return tombstones, upserts

    def key(self, record: StoredRecord) -> bytes:
        """Returns the key of one of the newest records in JSON, whichever form it has in the topic."""
        return self._keys.json(record.key or b"")

    def _opened(self, record: StoredRecord) -> StoredRecord:
        topic, partition, offset, key, value, header = record
        try:
            # Not by _replace: it takes as long as all the rest, once per row
            return StoredRecord(topic, partition, offset, key, self._opener.row(value or b"", header), header)
        except ValueError as error:
            raise RecordRejected(record, str(error)) from error

    def _with_key_in_json(self, record: StoredRecord) -> StoredRecord:
        try:
            return record._replace(key=self._keys.json(record.key or b""))
        except ValueError as error:
            raise RecordRejected(record, str(error)) from error

    def _is_former(self, key: bytes, header: bytes) -> bool:
        """Returns whether a record was written under a former key of the table. These records are left out."""
        if schema_of(header) in self._former_definitions or self._keys.is_former(key):
            return True
        # Bytes that are not a key have no members here; rendering rejects them
        if not self._former_keys:
            return False
        try:
            return JSON.members(self._keys.json(key)) in self._former_keys
        except ValueError:
            return False


class RowTexts:
    """Reads records as rows: the text of each column, as PostgreSQL prints it.

    Args:
        columns: the columns of a row, in order.
        others: members that records may have and that are left out.
        definitions: column names by fingerprint; the header names columns by their number (``json_null``).
        value_format: the format of keys and values.
    """

    def __init__(
        self,
        columns: Sequence[ReadColumn],
        others: Sequence[str] = (),
        definitions: Mapping[str, Sequence[str]] | None = None,
        *,
        value_format: ValueFormat = JSON,
    ) -> None:
        self._definitions = definitions or {}
        self._names = frozenset(column.name for column in columns)
        self._reader = value_format.reader(columns, others)

    def lines(self, records: Sequence[StoredRecord], *, of_key: bool) -> tuple[bytes, Sequence[int]]:
        """Returns COPY text of the records that can be read fast, and the places of all others."""
        return self._reader.lines(_sources(records, of_key), are_keys=of_key)

    def rows(self, records: Sequence[StoredRecord], *, of_key: bool) -> Sequence[Sequence[str]]:
        """Returns the texts of the records' values, or of their keys, row by row.

        Raises:
            RecordRejected: a record is not a row of these columns, or PostgreSQL's text cannot hold a value.
        """
        if of_key or not names_null_documents(records):
            text, left = self.lines(records, of_key=of_key)
            if not left:
                return _split(text)
            others = self._block([records[place] for place in left], of_key)
            if len(left) == len(records):
                return others
            found = dict(zip(left, others, strict=True))
            plain = iter(_split(text))
            return [found[place] if place in found else next(plain) for place in range(len(records))]
        return self._one_by_one(records, of_key)

    def _block(self, records: Sequence[StoredRecord], of_key: bool) -> Sequence[Sequence[str]]:
        rows = self._reader.block(_sources(records, of_key), are_keys=of_key)
        return self._one_by_one(records, of_key) if rows is None else rows

    def _one_by_one(self, records: Sequence[StoredRecord], of_key: bool) -> list[Sequence[str]]:
        """Reads rows one by one, which is slow but copes with any value and finds the record at fault."""
        rows: list[Sequence[str]] = []
        for record, source in zip(records, _sources(records, of_key), strict=True):
            try:
                nulls = self._names if of_key else self._null_documents(record.header)
                rows.append(self._reader.row(source, nulls))
            except (ValueError, DecodeError) as error:
                raise RecordRejected(record, str(error)) from error
        return rows

    def _null_documents(self, header: bytes) -> Collection[str]:
        """Returns the columns whose ``null`` is a JSON document and not SQL's NULL."""
        if _NULL_DOCUMENT not in header:
            return ()
        parsed = parse_header(header)
        return parsed.null_documents(self._definitions.get(parsed.schema))


def names_null_documents(records: Sequence[StoredRecord]) -> bool:
    """Returns whether a ``null`` in one of these rows is a JSON document, which only its header tells."""
    return _NULL_DOCUMENT in b"".join([record.header for record in records])


def _split(lines: bytes) -> list[Sequence[str]]:
    """Returns the texts of rows that are lines of COPY text."""
    if not lines:
        return []
    text = lines[:-1].decode()
    backslashes = text.count("\\")
    if backslashes == text.count("\\N"):  # each is of a NULL
        text, backslashes = text.replace("\\N", NULL), 0
    rows: list[Sequence[str]] = [line.split("\t") for line in text.split("\n")]
    if not backslashes:
        return rows
    return [[_unescaped(each) if "\\" in each else each for each in row] for row in rows]


def _unescaped(text: str) -> str:
    return NULL if text == "\\N" else _ESCAPE.sub(_meant, text)


def _meant(escape: re.Match[str]) -> str:
    return _ESCAPES.get(escape[1], escape[1])


def _sources(records: Sequence[StoredRecord], of_key: bool) -> list[bytes | None]:
    return [record.key if of_key else record.value for record in records]


def _last_of_each_key(records: Sequence[StoredRecord]) -> dict[bytes, StoredRecord]:
    """Returns the last record by key. ``records`` is in order for each key, because a key has one partition.

    ``replay.home`` has already left out records that another program wrote into a different partition.

    Raises:
        RecordRejected: a record has no key.
    """
    last = {record.key: record for record in records if record.key is not None}
    if (
        len(last) < len(records)
        and (nameless := next((each for each in records if each.key is None), None)) is not None
    ):
        raise RecordRejected(nameless, "has no key")
    return last
