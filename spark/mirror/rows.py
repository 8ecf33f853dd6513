"""Turns records into the texts of their rows, on an executor. Values stay exactly as PostgreSQL printed them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from cdc.base.errors import DecodeError
from cdc.contract.header import parse_header
from cdc.spark.values.columns import Kind, members_of, texts_of

LakeRow: TypeAlias = tuple[str, int, int, list[str | None] | None]
"""Key, partition, offset and the texts of the columns; None in place of these for a tombstone."""


class LakeRecord(NamedTuple):
    """A record of the topic contract.

    Attributes:
        key: its key.
        partition, offset: its place.
        texts: the texts of its columns; None for a tombstone.
        members: the same in JSON, as they stand in the value.
        documents: the columns whose ``null`` is a JSON document.
    """

    key: str
    partition: int
    offset: int
    texts: Mapping[str, str | None] | None = None
    members: Mapping[str, str] = {}
    documents: Collection[str] = ()


class RecordRefused(Exception):
    """Raised for a record that does not hold a row; names topic, partition, offset and key.

    Args:
        topic: the record's topic.
        place: its partition and offset.
        key: its key.
        reason: what is wrong with it.
    """

    def __init__(self, topic: str, place: tuple[int, int], key: bytes | None, reason: str) -> None:
        self.place, self.key, self.reason = place, key, reason
        super().__init__(
            f"topic {topic}, partition {place[0]}, offset {place[1]}, key {(key or b'')[:200]!r}: {reason}"
        )


@dataclass(frozen=True, slots=True)
class LakeRecordForm:
    """How to read the records of one topic.

    Attributes:
        columns: the lake's columns, in order.
        definitions: the columns and kinds in each definition, in order, by fingerprint.
    """

    topic: str
    columns: tuple[str, ...]
    definitions: Mapping[str, Mapping[str, Kind]]

    def rows(self, batch: Any) -> Iterator[LakeRow]:
        """Yields the row of each record; the rest as for ``records``."""
        for key, partition, offset, texts, *_ in self.records(batch):
            yield key, partition, offset, None if texts is None else [texts.get(name) for name in self.columns]

    def records(self, batch: Any) -> Iterator[LakeRecord]:
        """Yields what each record says. A tombstone whose key is not text says nothing: no row has such a key.

        Args:
            batch: a pyarrow RecordBatch with ``key``, ``value``, ``partition``, ``offset``, ``header``.

        Raises:
            RecordRefused: a record is not of the topic contract.
        """
        for record in _records(batch):
            if (read := self._read(*record)) is not None:
                yield read

    def refused(self, batch: Any) -> Iterator[RecordRefused]:
        """Yields the error for each record that ``rows`` refuses."""
        for record in _records(batch):
            try:
                self._read(*record)
            except RecordRefused as error:
                yield error

    def _read(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int, header: str | None
    ) -> LakeRecord | None:
        try:
            if key is None:
                raise DecodeError("the record has no key")
            row = () if value is None else self._row(value, header)
            return LakeRecord(key.decode(), partition, offset, *row)
        except (DecodeError, UnicodeError) as error:
            if value is None:
                return None
            reason = error.message if isinstance(error, DecodeError) else str(error)
            raise RecordRefused(self.topic, (partition, offset), key, reason) from error

    def _row(
        self, value: bytes, header: str | None
    ) -> tuple[Mapping[str, str | None], Mapping[str, str], Collection[str]]:
        if header is None:
            raise DecodeError("the record has no header cdc: another program wrote it")
        parsed = parse_header(header.encode())
        kinds = self.definitions.get(parsed.schema)
        if kinds is None:
            raise DecodeError(f"the schemas topic does not have the definition {parsed.schema}")
        members, documents = members_of(value), parsed.null_documents(list(kinds))
        texts = texts_of(members, kinds, documents)
        if any(text is not None and "\0" in text for text in texts.values()):
            raise DecodeError("the value has a NUL character, which PostgreSQL text cannot hold")
        if (b"\\ud" in value or b"\\uD" in value) and not _is_text("".join(filter(None, texts.values()))):
            raise DecodeError("the value has half a surrogate pair, which is not text")
        return texts, members, documents


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(batch: Any) -> Iterator[tuple[Any, ...]]:
    fields = (batch.column(name).to_pylist() for name in ("key", "value", "partition", "offset", "header"))
    return zip(*fields, strict=True)
