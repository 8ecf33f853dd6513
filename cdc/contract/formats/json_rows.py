"""Reads JSON objects as the texts of their members: the inverse of ``ObjectForm``, for the sink's hot path.

A block of values is decoded row by row and rendered column by column. If a value has an escaped NUL, or another shape
than its column's type suggests, the block is read again with ``row``, which finds out what is wrong.

``_json_rows.pyx`` does the same in C for plain rows, and writes the lines of COPY text, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import astuple

from cdc.base.compiled import twin
from cdc.contract.formats.format import NULL, ReadColumn
from cdc.contract.formats.json_texts import FORMS, any_text, form_of
from cdc.contract.json_members import members
from cdc.contract.kinds import INTEGERS, Kind, kind_of

_ESCAPED_NUL: Final = b"\\u0000"
_ESCAPED_NAME: Final = re.compile(r'["\\\x00-\x1f]')
_ABSENT: Final = {msgspec.Raw: msgspec.Raw(b"null")}


class ObjectReader:
    """Reads JSON objects with these members; a missing member is NULL.

    Args:
        columns: the columns, in the order of the texts.
        others: members that objects may have and the reader leaves out.
    """

    def __init__(self, columns: Sequence[ReadColumn], others: Sequence[str] = ()) -> None:
        self._columns = tuple(columns)
        self._known = {column.name for column in columns}.union(others)
        forms = [form_of(column.sql_type, column.delimiter) for column in columns]
        self._renderers = [form.render for form in forms]
        # The struct's fields have names of our own, because a column's name need not be a Python identifier.
        named = [*(column.name for column in columns), *others]
        # msgspec does not accept a name that JSON escapes. A name longer than any identifier takes its place: then the
        # decoder does not know the real name, and all rows take the slow way.
        names = {f"c{i}": f"{i:_>70}" if _ESCAPED_NAME.search(name) else name for i, name in enumerate(named)}
        accepted = [*(form.accepts for form in forms), *[msgspec.Raw] * len(others)]
        fields = [(field, accepts, _ABSENT.get(accepts)) for field, accepts in zip(names, accepted, strict=True)]
        struct = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode
        self._lines = _line_writer(columns, others)

    def lines(self, sources: Sequence[Any], *, are_keys: bool) -> tuple[bytes, Sequence[int]]:
        """Returns COPY text of plain rows, and the places of all others; without the twin, these are all rows."""
        if self._lines is None:
            return b"", range(len(sources))
        written: tuple[bytes, list[int]] = self._lines.lines(sources, are_keys)
        return written

    def block(self, sources: Sequence[Any], *, are_keys: bool) -> Sequence[Sequence[str]] | None:
        """Returns the texts row by row; None if one of the objects needs ``row``."""
        try:
            joined = b"".join(sources)
            # Key columns are never NULL, so a null in a key is a document, which only ``row`` can tell.
            if _ESCAPED_NUL in joined or (are_keys and b":null" in joined):
                return None
            decode = self._decode
            columns = zip(*[astuple(decode(source)) for source in sources], strict=True)
            rendered = [render(values) for render, values in zip(self._renderers, columns, strict=False)]
            return list(zip(*rendered, strict=True))
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError):
            return None

    def row(self, source: bytes | None, null_documents: Collection[str]) -> Sequence[str]:
        """Returns the texts of one object, by the actual shape of each value.

        Raises:
            ValueError: not such an object, or PostgreSQL's text cannot hold a value.
        """
        if not source:
            raise ValueError("the value is empty; only a tombstone, a record without a value, deletes")
        if source == b"null":
            raise ValueError("the value is the JSON word null; only a tombstone, a record without a value, deletes")
        try:
            return self._texts(source, null_documents)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"cannot be read as JSON: {error}") from error

    def _texts(self, source: bytes, null_documents: Collection[str]) -> list[str]:
        found = members(source)
        if unknown := found.keys() - self._known:
            raise ValueError(
                f"the value has members that are in no definition of the schemas topic: {', '.join(sorted(unknown))}"
            )
        texts = []
        for name, sql_type, delimiter in self._columns:
            member = found.get(name)
            text = NULL if member is None else any_text(member, sql_type, delimiter)
            if text == NULL and name in null_documents:
                text = "null"
            if text != NULL and "\0" in text:
                raise ValueError(f"column {name!r} has a NUL character, which PostgreSQL's text cannot hold")
            texts.append(text)
        return texts


def _line_writer(columns: Sequence[ReadColumn], others: Sequence[str]) -> Any:
    """Returns the twin's ``LineWriter`` for these columns; None if there is no twin."""
    if (module := twin("cdc.contract.formats._json_rows")) is None or not columns:
        return None
    names = [*(column.name for column in columns), *others]
    forms = [*(_line_form(module, column) for column in columns), *[module.LEFT_OUT] * len(others)]
    return module.LineWriter([orjson.dumps(name) for name in names], forms)


def _line_form(module: Any, column: ReadColumn) -> Any:
    kind, is_array, _ = kind_of(column.sql_type)
    is_string = FORMS[kind].accepts == str | None
    if is_array:
        is_plain = is_string and column.delimiter == ","
        return module.STRINGS if is_plain else module.OTHER if is_string or kind is Kind.DOCUMENT else module.NUMBERS
    if kind is Kind.DOCUMENT:
        return module.DOCUMENT
    return module.STRING if is_string else module.INTEGER if kind in INTEGERS else module.BARE
