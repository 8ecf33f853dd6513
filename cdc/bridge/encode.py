"""Turns the rows of one relation into key and value bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, NamedTuple

from cdc.base.compiled import twin
from cdc.base.errors import ConfigError, EncodeError
from cdc.contract.change import UNCHANGED_TOAST, Relation, Row
from cdc.contract.formats.format import NOT_ENCODABLE, RowWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.hiding import Hiding, hashed_cells
from cdc.contract.pgtypes import sql_type
from cdc.contract.quarantine import RefusedRow
from cdc.contract.record import DebeziumModes, FormatName, ValueForms, WrittenSchema
from cdc.contract.schema import table_schema

FRAME_BYTES: Final = 4_096
"""What surrounds key and value in the largest record: its header with a fingerprint and a snapshot, the headers of
CloudEvents, and the broker's own. Names of columns in the header come on top."""
_COLUMN_BYTES: Final = 5
"""A column's index in the header, with its comma."""


class CompiledTable(NamedTuple):
    """What the C code needs to write a table's rows.

    Attributes:
        values, keys: its writers.
        key_places: the indexes of the key's columns.
        most_bytes: a row whose key and value are larger together is declined, as Python puts it into quarantine.
    """

    values: Any
    keys: Any
    key_places: tuple[int, ...]
    most_bytes: int


class ValueForm(NamedTuple):
    """How the values of a relation are written when they are not JSON in the form that it has by default.

    Attributes:
        format: its name.
        writer: encodes rows of the relation's columns.
        written: the schemas that values of this definition were written with, the writer's own the last one.
        envelope: what surrounds each row; None if nothing does.
        was_enveloped: whether the topic held envelopes before.
        values: the forms that values have in JSON, where these are not the default.
    """

    format: FormatName
    writer: RowWriter
    written: tuple[WrittenSchema, ...] = ()
    envelope: DebeziumModes | None = None
    was_enveloped: bool = False
    values: ValueForms = ValueForms()


class HidingWriter:
    """Encodes what may leave of a row, and nothing else of it.

    Args:
        writer: encodes rows of the relation as it is published.
        hiding: makes such rows.
    """

    bare_template = None

    def __init__(self, writer: RowWriter, hiding: Hiding) -> None:
        self._writer = writer
        self._hiding = hiding
        module = twin("cdc.contract._hiding")
        self.compiled: Any = None
        if module is not None and writer.compiled is not None:
            self.compiled = module.ShownRowWriter(writer.compiled, hiding.width, hiding.cells)

    def encode(self, row: Row) -> bytes:
        """Returns the bytes of a row of the stream, without what is hidden of it."""
        return self._writer.encode(self._hiding.row(row))

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the places, among the published columns, of JSON documents ``null``."""
        try:
            return self._writer.null_documents(self._hiding.row(row))
        except NOT_ENCODABLE:
            return ()  # encode refuses the row, and says why

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why what leaves of a value cannot be encoded; so the reason does not tell what is hidden."""
        try:
            published = self._hiding.cell(place, cell)
        except UnicodeDecodeError:
            return "not UTF-8"
        return "" if published is None else self._writer.problem(*published)


class HashedKeyWriter:
    """Encodes keys some columns of which leave as hashes.

    Args:
        writer: encodes keys as they are published.
        cells: for each column of the key, its place in the key, and the function that hashes its values or None.
    """

    bare_template = None

    def __init__(self, writer: RowWriter, cells: Sequence[tuple[int, Callable[[Any], Any] | None]]) -> None:
        self._writer = writer
        self._cells = cells
        module = twin("cdc.contract._hiding")
        self.compiled: Any = None
        if module is not None and writer.compiled is not None:
            self.compiled = module.ShownRowWriter(writer.compiled, len(cells), cells)

    def encode(self, key: Row) -> bytes:
        """Returns the bytes of a key whose values are those of the stream."""
        return self._writer.encode(
            tuple([key[place] if mask is None else mask(key[place]) for place, mask in self._cells])
        )


class TableEncoder:
    """Encodes the rows of one version of a relation. A new ``Relation`` message needs a new encoder.

    Old rows for a history are JSON in every format; those for an envelope have the form of its rows.

    Args:
        relation: as the stream described it.
        key_columns: names in key order. The caller names them, as the stream does not under REPLICA IDENTITY FULL.
        topic: where the records go.
        form: how values are written; None for JSON in the form that it has by default.
        key_schema: the schema of the keys, with its id; None if they are JSON.
        hiding: hides columns of the relation; None if all of it leaves.

    Raises:
        ConfigError: there are no key columns, or one of them is not published.

    Attributes:
        relation: as the stream described it.
        published: as it is published: without what is hidden.
        schema: the definition to publish before the first record that refers to it.
        fingerprint: the definition's fingerprint, for record headers.
        null_documents: maps a row to the indexes of json and jsonb columns whose document ``null`` looks like NULL in
            the value.
        has_hashed_key: whether a column of the key leaves as a hash: then no record tells which row it is of.
        most_bytes: how large a key and its value may be together; None if a row that cannot be carried is an error,
            and not put into quarantine.
    """

    most_bytes: int | None = None

    def __init__(
        self,
        relation: Relation,
        key_columns: tuple[str, ...],
        topic: str,
        form: ValueForm | None = None,
        key_schema: WrittenSchema | None = None,
        hiding: Hiding | None = None,
    ) -> None:
        self.relation = relation
        self.published = published = relation if hiding is None else hiding.relation
        self.key_columns = key_columns
        self.topic = topic
        schema = table_schema(published, key_columns, topic, ValueForms() if form is None else form.values, key_schema)
        self.schema = schema
        if form is not None:
            self.schema = replace(
                schema,
                format=form.format,
                written=form.written,
                envelope=form.envelope,
                was_enveloped=form.was_enveloped,
            )
        self.fingerprint = self.schema.fingerprint
        self._key_indexes = _key_indexes(relation, key_columns)
        self._hiding = hiding
        self._value_form = self._hidden(JSON.writer(published.columns) if form is None else form.writer)
        self._key_form: RowWriter | HashedKeyWriter = _key_writer(published, key_columns, key_schema)
        cells = () if hiding is None else hashed_cells(hiding, self._key_indexes)
        self.has_hashed_key = bool(cells)
        if cells:
            self._key_form = HashedKeyWriter(self._key_form, cells)
        # The writer's own method rather than one that calls it: it runs once per row.
        self.null_documents: Callable[[Row], tuple[int, ...]] = self._value_form.null_documents
        self._bare_key = self._key_form.bare_template
        self._key_cells: Callable[[Row], object] = itemgetter(*self._key_indexes)

    def key(self, row: Row) -> bytes:
        """Returns the canonical key, ``{"id":42}`` in JSON, of a new row, a whole old row or an identity-only old row.

        Raises:
            EncodeError: a key column is NULL, was not sent or cannot be encoded.
        """
        if self._bare_key is not None:
            # The fast path: integers, uuids, timestamps and the like. The slow one knows how to say what is wrong.
            try:
                return self._bare_key % self._key_cells(row)
            except (TypeError, IndexError):
                return self._key_by_form(row)
        return self._key_by_form(row)

    def _key_by_form(self, row: Row) -> bytes:
        try:
            cells = tuple([row[i] for i in self._key_indexes])
            if None in cells:
                raise ValueError("NULL in a key column")
            return self._key_form.encode(cells)
        except NOT_ENCODABLE as error:
            raise self._refusal(row, error) from error

    @property
    def compiled(self) -> CompiledTable | None:
        """What the C code needs for this table; None without a compiler."""
        values, keys = self._value_form.compiled, self._key_form.compiled
        most = sys.maxsize if self.most_bytes is None else self.most_bytes
        return None if values is None or keys is None else CompiledTable(values, keys, self._key_indexes, most)

    def quarantines(self, max_message_bytes: int) -> None:
        """Have rows that cannot be carried put into quarantine: what cannot be encoded, or makes too large a record."""
        self.most_bytes = max_message_bytes - FRAME_BYTES - _COLUMN_BYTES * len(self.relation.columns)

    def value(self, row: Row) -> bytes:
        """Returns the whole row in the table's format; in JSON, an object with its columns in attribute order.

        Returns a ``RefusedRow`` for a row that cannot be carried and goes into quarantine.

        Raises:
            EncodeError: a value was not sent (fill it first) or cannot be encoded. Names table, column and key.
        """
        try:
            value = self._value_form.encode(row)
        except NOT_ENCODABLE as error:
            refusal = self._refusal(row, error)
            if self.most_bytes is None or len(row) != len(self.relation.columns) or self.missing(row):
                raise refusal from error
            return self._refused(row, refusal.message, refusal.remedy)
        if self.most_bytes is not None and len(value) + len(key := self.key(row)) > self.most_bytes:
            return self._refused(
                row,
                f"table {self.relation.qualified_name}, key {key.decode(errors='replace')}: key and value have "
                f"{len(key) + len(value):,} bytes, and the topic takes {self.most_bytes:,}",
                "raise topics.max_message_bytes in the configuration and max.message.bytes of topic "
                f"{self.topic!r}; or keep less in the row",
            )
        return value

    def _refused(self, row: Row, reason: str, remedy: str) -> RefusedRow:
        """Returns what stands for a row in quarantine, with what may leave of it.

        Raises:
            EncodeError: the key cannot be encoded, so the row has no place in any topic.
        """
        self.key(row)
        texts: dict[int, bytes] = {}
        for place, cell in enumerate(row):
            if not isinstance(cell, bytes):
                continue
            try:
                shown = (place, cell) if self._hiding is None else self._hiding.cell(place, cell)
            except UnicodeDecodeError:
                continue  # a mask cannot be applied to it, so nothing of it leaves
            if shown is not None:
                texts[shown[0]] = shown[1]
        cells = [(each.name, sql_type(each), texts.get(place)) for place, each in enumerate(self.published.columns)]
        return RefusedRow.of(self.relation.qualified_name, reason, remedy, cells)

    def old(self, row: Row, is_full: bool) -> bytes | None:
        """Returns an old row as far as the stream sent it: all columns, or those of the replica identity.

        Returns None for a row that could not be carried, which no reader has seen.

        Raises:
            EncodeError: a value cannot be encoded. Names table, column and key.
        """
        try:
            old = self._old(row, is_full)
        except NOT_ENCODABLE as error:
            if self.most_bytes is not None:
                return None
            raise self._refusal(row, error) from error
        return None if self.most_bytes is not None and len(old) > self.most_bytes else old

    def _old(self, row: Row, is_full: bool) -> bytes:
        if is_full or self.schema.envelope is not None:  # an envelope has every column, unknown ones as null
            return self._old_form.encode(row)
        form, indexes = self._identity
        published = row if self._hiding is None else self._hiding.row(row)
        return form.encode(tuple([published[i] for i in indexes]))

    @cached_property
    def _old_form(self) -> RowWriter:
        is_json = self.schema.format == "json" and not self.schema.is_formed
        if is_json or self.schema.envelope is not None:
            return self._value_form
        return self._hidden(JSON.writer(self.published.columns))

    def _hidden(self, writer: RowWriter) -> RowWriter:
        return writer if self._hiding is None else HidingWriter(writer, self._hiding)

    @cached_property
    def _identity(self) -> tuple[RowWriter, tuple[int, ...]]:
        columns = self.published.columns
        indexes = tuple(i for i, column in enumerate(columns) if column.in_identity)
        return JSON.writer([columns[i] for i in indexes]), indexes

    def missing(self, row: Row) -> tuple[int, ...]:
        """Returns the indexes of the columns that the stream left out as unchanged TOAST, and that are not hidden."""
        if UNCHANGED_TOAST not in row:
            return ()
        missing = tuple(i for i, cell in enumerate(row) if cell is UNCHANGED_TOAST)
        return missing if self._hiding is None else tuple(i for i in missing if i in self._hiding.needed)

    def fill(self, row: Row, old: Row) -> Row:
        """Returns ``row`` with missing values taken from the old tuple of the same message, where that has them.

        An identity-only old tuple has NULL in every other column, but a value that was left out is never NULL. So only
        bytes are taken. Call ``missing`` on the result to see what is still wanted.
        """
        return tuple(
            [
                before if cell is UNCHANGED_TOAST and before is not None else cell
                for cell, before in zip(row, old, strict=True)
            ]
        )

    def fill_at(self, row: Row, values: Mapping[int, bytes | None]) -> Row:
        """Returns ``row`` completed with values that were read from the table, by column index. NULL counts as one."""
        return tuple([values.get(i, cell) if cell is UNCHANGED_TOAST else cell for i, cell in enumerate(row)])

    def _refusal(self, row: Row, cause: Exception) -> EncodeError:
        name = self.relation.qualified_name
        columns = self.relation.columns
        if len(row) != len(columns):
            return EncodeError(
                f"table {name}: a row has {len(row)} values for {len(columns)} columns",
                remedy="report this bug of cdc with the table's definition; no row was skipped",
            )
        left_out = self.missing(row)
        if left_out:
            # No diagnosis per column: callers meet this on every row with unchanged TOAST, fill it and ask again.
            return EncodeError(
                f"table {name}: unchanged TOAST, not filled in: {[columns[i].name for i in left_out]}",
                remedy="report this bug of cdc with the table's definition; no row was skipped",
            )
        problems = [
            f"column {column.name} ({column.type_name}): {problem}"
            for i, (column, cell) in enumerate(zip(columns, row, strict=True))
            if (problem := self._problem(i, cell))
        ]
        key = {columns[i].name: self._shown(i, row[i]) for i in self._key_indexes}
        return EncodeError(
            f"table {name}, key {key}: {'; '.join(problems) or cause}",
            remedy="no record was written; correct the row, or take the table out of the publication",
        )

    def _shown(self, place: int, cell: object) -> object:
        """Returns a value of the key as it leaves."""
        if self._hiding is None or not isinstance(cell, bytes):
            return cell
        shown = self._hiding.cell(place, cell)
        return None if shown is None else shown[1]

    def _problem(self, place: int, cell: object) -> str:
        if not isinstance(cell, bytes):
            return "NULL in a key column" if place in self._key_indexes else ""
        return self._value_form.problem(place, cell)


def _key_writer(published: Relation, key: Sequence[str], schema: WrittenSchema | None) -> RowWriter:
    by_name = {each.name: each for each in published.columns}
    columns = [by_name[name] for name in key]
    if schema is None:
        return JSON.writer(columns)
    # Only who has keys in Avro pays for its import
    from cdc.contract.formats.avro.keys import AvroKeyWriter

    return AvroKeyWriter(columns, schema.schema_id)


def _key_indexes(relation: Relation, key_columns: tuple[str, ...]) -> tuple[int, ...]:
    if not key_columns:
        raise ConfigError(
            f"table {relation.qualified_name} has no key",
            remedy="add a primary key, or set REPLICA IDENTITY FULL and name key columns in source.keys",
        )
    indexes = {column.name: i for i, column in enumerate(relation.columns)}
    absent = [name for name in key_columns if name not in indexes]
    if absent or len(set(key_columns)) != len(key_columns):
        raise ConfigError(
            f"table {relation.qualified_name}: key column {', '.join(absent) or key_columns} is not published"
            if absent
            else f"table {relation.qualified_name}: key columns {key_columns} contain a column twice",
            remedy="correct source.keys, or add the column to the publication's column list",
        )
    return tuple(indexes[name] for name in key_columns)
