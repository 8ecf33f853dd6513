"""Leaves columns out of rows, and masks values, before anything of a row is encoded. Pure.

A mask takes PostgreSQL's text of a value; NULL stays NULL:

- ``null``: every value becomes NULL.
- ``last4``: ``****`` and the last four characters. A text of fewer than eight characters would be half told: of it,
  only ``****`` is left.
- ``sha256``: HMAC-SHA-256 in hex, keyed with the deployment's salt, of the column's name (``schema.table.column``), a
  zero byte and the text. Equal values of one column stay equal, and nobody without the salt can try out values.
- ``sha256-joinable``: the same of the text alone, so that equal values are equal in all columns that have this mask.

A masked column is of type ``text``; under ``null`` it keeps its type. https://www.rfc-editor.org/rfc/rfc2104
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from cdc.contract.change import Column, Relation, Row
from cdc.contract.pgtypes import BUILTIN_NAMES

Mask: TypeAlias = Literal["null", "last4", "sha256", "sha256-joinable"]

EXCLUDED: Final = "excluded"
"""The rule, as a definition tells it, of a column that does not leave."""
_TEXT_OID: Final = 25
_SALT_MARK: Final = b"\0salt"
"""No text and no column's name begins with a zero byte, so the mark tells nothing about the hash of any value."""
_MARK_DIGITS: Final = 8
_SHOWN, _LONG_ENOUGH = 4, 8
_HASHES: Final = ("sha256", "sha256-joinable")


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """What of a table's rows may not leave.

    Attributes:
        exclude: columns that are left out.
        masks: the mask of each masked column.
        keep: columns that leave as they are; None if every column without a rule does.
        salt: the key of the hashes.
    """

    exclude: frozenset[str]
    masks: Mapping[str, Mask]
    keep: frozenset[str] | None
    salt: bytes

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """The rules as a definition tells them, by column: another salt makes other rules, and is not told itself."""
        mark = hmac.digest(self.salt, _SALT_MARK, hashlib.sha256).hex()[:_MARK_DIGITS]
        salted = {name: f"{mask} {mark}" if mask in _HASHES else mask for name, mask in self.masks.items()}
        return tuple(sorted({**salted, **dict.fromkeys(self.exclude, EXCLUDED)}.items()))

    def published(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Returns the columns as they are published."""
        return tuple(_published(each, self.masks.get(each.name)) for each in columns if each.name not in self.exclude)

    def hashed(self) -> frozenset[str]:
        """Returns the columns whose values leave as hashes. Different values have different ones, so keys stay keys."""
        return frozenset(name for name, mask in self.masks.items() if mask in _HASHES)

    def misfit(self, columns: Collection[str], key: Collection[str]) -> str:
        """Returns what keeps the rules from being applied to a table with these columns, to follow "table x"; or ""."""
        ruled = {*self.exclude, *self.masks}
        if in_key := sorted((ruled - self.hashed()) & set(key)):
            return (
                f"has {_listed(in_key)} in its key, and source.columns hides it: a column of the key can only be "
                "hashed, or two rows would have one key"
            )
        if absent := sorted((ruled | (self.keep or set())) - set(columns)):
            return f"has no published column {_listed(absent)}, which source.columns names"
        unnamed = [each for each in columns if each not in {*ruled, *key, *(self.keep or ())}]
        if self.keep is not None and unnamed:
            return f"has columns that its strict policy in source.columns does not name: {_listed(unnamed)}"
        return ""


class Hiding:
    """Hides what rules name in the rows of one version of a relation.

    Args:
        relation: as the stream, or a reading of the table, described it; the rules fit it.
        rules: what to hide.

    Attributes:
        relation: the relation as it is published.
        width: how many columns it has in the stream.
        cells: for each published column, its place in the stream's row, and the function that masks its values; None
            if they leave as they are.
        needed: the places of columns whose values matter. Others need not be read when the stream left them out.
    """

    def __init__(self, relation: Relation, rules: ColumnRules) -> None:
        name = relation.qualified_name
        columns = [each for each in enumerate(relation.columns) if each[1].name not in rules.exclude]
        self.width = len(relation.columns)
        self.cells = tuple((place, _mask(rules, name, column.name)) for place, column in columns)
        self.needed = frozenset(place for place, column in columns if rules.masks.get(column.name) != "null")
        self.relation = replace(relation, columns=rules.published(relation.columns), rules=rules.told)
        self._last: tuple[Row, Row] = ((), ())

    def row(self, row: Row) -> Row:
        """Returns what may leave of a row.

        Raises:
            ValueError: the row has another width than the relation, or a text is not UTF-8.
        """
        last, hidden = self._last
        if row is last:  # the header is asked for right after the value
            return hidden
        if len(row) != self.width:
            raise ValueError(f"a row has {len(row)} values for {self.width} columns")
        hidden = tuple([row[place] if mask is None else mask(row[place]) for place, mask in self.cells])
        self._last = (row, hidden)
        return hidden

    def cell(self, place: int, cell: bytes) -> tuple[int, bytes] | None:
        """Returns where a value of the relation stands in what is published, and as what; None if it does not leave."""
        for published, (source, mask) in enumerate(self.cells):
            if source == place:
                masked = cell if mask is None else mask(cell)
                return None if masked is None else (published, masked)
        return None


def hashed_cells(hiding: Hiding, key_places: Sequence[int]) -> tuple[tuple[int, Callable[[Any], Any] | None], ...]:
    """Returns, for each column of a key, its place in the key, and the function that hashes its values; () if none is.

    Args:
        hiding: of the table.
        key_places: the places of the key's columns in the stream's row.
    """
    masks = dict(hiding.cells)
    cells = tuple((number, masks[place]) for number, place in enumerate(key_places))
    return cells if any(mask is not None for _, mask in cells) else ()


def _published(column: Column, mask: Mask | None) -> Column:
    if mask is None or mask == "null":
        return column
    return replace(column, type_oid=_TEXT_OID, type_modifier=-1, type_name=BUILTIN_NAMES[_TEXT_OID], labels=())


def _mask(rules: ColumnRules, table: str, column: str) -> Callable[[Any], Any] | None:
    """Returns the function that masks a cell. It leaves NULL alone, and what the stream left out."""
    mask = rules.masks.get(column)
    if mask == "null":
        return _nothing
    if mask == "last4":
        return _last_characters
    if mask is None:
        return None
    keyed = hmac.new(rules.salt, b"" if mask == "sha256-joinable" else f"{table}.{column}\0".encode(), hashlib.sha256)

    def digested(cell: Any) -> Any:
        if not isinstance(cell, bytes):
            return cell
        own = keyed.copy()  # which has the key's first block done already
        own.update(cell)
        return own.hexdigest().encode()

    return digested


def _nothing(_: Any) -> Any:
    return None


def _last_characters(cell: Any) -> Any:
    if not isinstance(cell, bytes):
        return cell
    text = cell.decode()
    return f"****{text[-_SHOWN:] if len(text) >= _LONG_ENOUGH else ''}".encode()


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
