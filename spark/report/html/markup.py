"""Builds HTML so that text cannot become markup: every string is escaped unless ``element`` made it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from cdc.spark.report.values import is_invisible, picture

_VOID: Final = frozenset({"br", "input", "link", "meta"})


class Markup(str):
    """Text that is already HTML. Only ``element`` and ``trusted`` create it."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """Builds one element.

    ``cls`` stands for ``class``, and ``_`` in names for ``-``. True makes an attribute without a value; None and False
    leave it out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(_content(child) for child in children)}</{name}>")


def trusted(text: str) -> Markup:
    """Returns our own style sheet or script as markup, without escaping it."""
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
    # Not only markup: also control characters, marks that change the direction of text, and lone surrogates.
    return escape("".join(f"[{picture(letter)}]" if is_invisible(letter) else letter for letter in text), quote=True)
