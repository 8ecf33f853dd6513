"""Checks PostgreSQL's texts for a database whose casts round, cut or drop: it gets only what it reads as that value."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from cdc.contract.kinds import Kind, kind_of
from cdc.sink.sql.dialect import Conversion, StorageForm

_SCALED: Final = re.compile(r"[A-Za-z]+\(([0-9]+),([0-9]+)\)")


class Texts(NamedTuple):
    """The type of text of a database: what a column of a narrower type is to become, if its values are right.

    Attributes:
        sql: the type.
    """

    sql: str

    def matching(self, pattern: re.Pattern[str], what: str, text: str) -> str:
        """Returns the text; raises ``ValueError`` if it does not match."""
        if pattern.fullmatch(text) is None:
            raise ValueError(
                f"{text[:50]!r} is not {what}; if the values are right, make the replica's column {self.sql}"
            )
        return text

    def checked(self, pattern: str, what: str) -> Conversion:
        """Returns what checks texts.

        Args:
            pattern: matches each whole text that the column holds, and no NUL.
            what: what such a text is, in words.
        """
        # No text has a NUL, so it shows where each one ends. Possessive: nothing to come back to for each of them
        whole = re.compile(rf"(?:(?:{pattern})\0)*+")

        def many(texts: Sequence[str]) -> Sequence[str]:
            if whole.fullmatch("\0".join([*texts, ""])) is None:
                raise ValueError(f"a text is not {what}")
            return texts

        return Conversion(partial(self.matching, re.compile(pattern), what), many)

    def decimals(self, sql_type: str, *, digits: int, scale: int) -> StorageForm | None:
        """Returns how a column holds numbers of a fixed precision; None for other types, and for too many digits.

        Args:
            sql_type: the source's type.
            digits: the most digits of the database's DECIMAL.
            scale: the most of them after the point.
        """
        match = _SCALED.fullmatch(sql_type)
        if match is None or kind_of(sql_type).kind is not Kind.DECIMAL:
            return None
        precision, places = map(int, match.groups())
        if not places <= precision <= digits or places > scale:
            return None
        fraction = rf"\.[0-9]{{{places}}}" if places else ""
        what = f"a number that DECIMAL({precision},{places}) holds"
        return StorageForm(f"DECIMAL({precision},{places})", self.checked(rf"-?[0-9]+{fraction}", what))


def is_wider(wider: Mapping[str, Collection[str]], made: str, stored: str) -> bool:
    """Returns whether a type holds all values of another, with the same digits.

    Args:
        wider: the types that hold all values of a type, for those without a precision.
        made: the type of the values.
        stored: the other one.
    """
    if stored in wider.get(made, ()):
        return True
    narrow, wide = _SCALED.fullmatch(made), _SCALED.fullmatch(stored)
    if narrow is None or wide is None:
        return False
    return narrow[2] == wide[2] and int(narrow[1]) <= int(wide[1])


def then(first: Callable[[str], str], second: Callable[[str], Any]) -> Conversion:
    """Returns what checks texts with one and makes the driver's values of them with the other."""

    def many(texts: Sequence[str]) -> Sequence[Any]:
        return [*map(second, first.many(texts) if isinstance(first, Conversion) else map(first, texts))]

    return Conversion(lambda text: second(first(text)), many)
