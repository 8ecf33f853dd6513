"""Turns a topic value back into the server's text, using only the topic contract.

This is deliberately a second implementation of the contract. Apart from what takes JSON apart, it shares no code with
``contract/formats`` or ``sink``, so that it finds their mistakes. It takes the JSON of one column as raw bytes, and
returns what the type's output function prints.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from cdc.base.errors import CdcError
from cdc.contract.json_members import elements


class TypeForm(enum.Enum):
    """The form of a type in a topic value."""

    BOOL = "true or false"
    NUMBER = "a JSON number, or NaN and the infinities as strings"
    DOCUMENT = "the JSON document itself"
    TEXT = "the server's text as a JSON string"


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """A published column. With an ``array_delimiter`` it is an array, and ``form`` is the form of its elements."""

    name: str
    form: TypeForm
    array_delimiter: bytes | None


class FormError(CdcError):
    """A topic value does not have the form that the contract defines for its type.

    Args:
        message: what is wrong, as in every ``CdcError``.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, remedy="find out who else writes into this topic: cdc topics lint")


def server_text(raw: bytes, shape: ColumnShape) -> bytes | None:
    """Returns the server's text for the JSON of one column; None for SQL NULL.

    Raises:
        FormError: the JSON does not have the contract's form for this type.
    """
    if raw == b"null":
        return None
    if shape.array_delimiter is None:
        return _scalar(raw, shape.form)
    if raw.startswith(b'"'):  # arrays with lower bounds other than 1 are published as the server's text
        return _string(raw)
    return _array(raw, shape.form, shape.array_delimiter)


def _string(raw: bytes) -> bytes:
    return msgspec.json.decode(raw, type=str).encode()


def _scalar(raw: bytes, form: TypeForm) -> bytes:
    first = raw[:1]
    if form is TypeForm.DOCUMENT:
        return raw
    if form is TypeForm.BOOL and raw in (b"true", b"false"):
        return first
    if form is TypeForm.NUMBER and first in b"-0123456789":
        return raw
    if first == b'"' and (form is TypeForm.TEXT or _string(raw) in (b"NaN", b"Infinity", b"-Infinity")):
        return _string(raw)
    raise FormError(f"{raw[:60]!r} is not {form.value}")


def _array(raw: bytes, form: TypeForm, delimiter: bytes) -> bytes:
    """Print an array as ``array_out`` does: braces, delimiters, and quotes where an element would be ambiguous."""
    printed = []
    for element in elements(raw):
        item = bytes(element)
        if item == b"null":
            printed.append(b"NULL")
        elif item.startswith(b"[") and form is not TypeForm.DOCUMENT:
            printed.append(_array(item, form, delimiter))
        else:
            printed.append(_quoted(_scalar(item, form), delimiter))
    return b"{" + delimiter.join(printed) + b"}"


def _quoted(text: bytes, delimiter: bytes) -> bytes:
    special = b'"\\{} \t\n\r\v\f' + delimiter
    if text and text.upper() != b"NULL" and not any(byte in special for byte in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
