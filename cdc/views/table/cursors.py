"""How far a reader has come: a cursor in the rows of a table, a token in the journal. Opaque texts, safe in URLs. Pure.

A cursor names the store, the table, the form of its key and the index, so it cannot be used with another one. It does
not name the generation: keys sort alike in all of them, so after a table was read anew, the next page still begins
after the same key. As with any paging, changes before that key are not seen; ``Evidence.generation`` shows that there
may be some.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from cdc.views.table.errors import WrongCursor
from cdc.views.table.facts import TableFacts


class Token(NamedTuple):
    """Up to where somebody knows the journal.

    Attributes:
        store_id: the id of the store.
        version: the entry of this commit and all before it are known.
        keys: how many keys of the entry after it are known as well.
    """

    store_id: str
    version: int
    keys: int = 0

    def text(self) -> str:
        """Writes the token for ``parse_token``."""
        return f"{self.store_id}-{self.version}-{self.keys}"


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    store_id: str
    table: str
    shape: int
    order: bytes


_LONG: Final = 300
"""Longer cursors (in bytes) are compressed, because URLs are limited. A key from PostgreSQL is short or compresses
well: the index of its table demands that."""

_DEFLATED: Final = b"\x78"
"""The first byte of zlib's output. A cursor that is not compressed begins with the byte of a list of four."""
_LONGEST: Final = 1 << 24
"""Limit in bytes for decompressing a cursor: longer than any key that Kafka accepts."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Cursor).decode


def cursor(store_id: str, table: TableFacts, index: Sequence[str], order: bytes) -> str:
    """A cursor that goes on after this row or index entry."""
    made = _encode(_Cursor(store_id, table.name, _shape(table, index), order))
    if len(made) > _LONG:
        made = zlib.compress(made, 9)
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def order_after(text: str, store_id: str, table: TableFacts, index: Sequence[str]) -> bytes:
    """The order at which the next page starts.

    Raises:
        WrongCursor: not a cursor, or one of another store, table or index, or of a former key of the table.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = _decode(_inflated(raw) if raw[:1] == _DEFLATED else raw)
    except (binascii.Error, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise WrongCursor("invalid cursor", remedy="send it unchanged, or begin without one") from error
    if (found.table, found.shape) != (table.name, _shape(table, index)):
        raise WrongCursor(
            f"the cursor is for another index or another key of table {found.table}"
            if found.table == table.name
            else f"the cursor is for table {found.table}, not {table.name}",
            remedy="use it with the question that it was given for, or begin without one",
        )
    if found.store_id != store_id:
        raise WrongCursor("the cursor is for another store: this one was made anew", remedy="begin without a cursor")
    return found.order + b"\0"


def _inflated(raw: bytes) -> bytes:
    """Decompresses a cursor up to the limit, because a client may have made it up."""
    return zlib.decompressobj().decompress(raw, _LONGEST)


def parse_token(text: str) -> Token:
    """Reads what ``Token.text`` wrote.

    Raises:
        WrongCursor: not such a text.
    """
    store_id, *numbers = text.rsplit("-", 2)
    if len(numbers) != 2 or not all(each.isascii() and each.isdigit() and len(each) < 20 for each in numbers):
        raise WrongCursor("invalid token", remedy="send it unchanged, or begin without one")
    return Token(store_id, *map(int, numbers))


def _shape(table: TableFacts, index: Sequence[str]) -> int:
    key = [table.key_kind, *(f"{column.name} {column.sql_type}" for column in table.key)]
    return zlib.crc32("\n".join([*key, "", *index]).encode())
