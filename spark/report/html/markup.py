"""Builds HTML so that text cannot become markup: every string is escaped, unless an element made it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from cdc.spark.report.values import is_invisible, picture

_VOID: Final = frozenset({"br", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already; only ``element`` and ``trusted`` make it."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """One element. ``cls`` is class, ``_`` in names is ``-``; True is a bare attribute, None and False are none."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(_content(child) for child in children)}</{name}>")


def trusted(text: str) -> Markup:
    """Our own style sheet or script, as it is."""
    return Markup(text)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = "class" if key == "cls" else key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _content(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int):
        return _escaped(str(child))
    return "".join(_content(each) for each in child)


def _escaped(text: str) -> str:
    # Beside markup: control characters, marks that turn the direction of text, and what no UTF-8 file can hold.
    return escape("".join(f"[{picture(letter)}]" if is_invisible(letter) else letter for letter in text), quote=True)
