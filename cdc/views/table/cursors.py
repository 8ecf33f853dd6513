"""Where an asker is: a cursor in the rows of a table, a token in the journal. Opaque texts, safe in URLs. Pure.

A cursor names the store, the table, the shape of its key and the index, so that it is never mistaken for another one's.
It does not name the generation: keys sort alike in all of them, so a page that is asked for after a table was read
anew goes on behind the same key. What changed before that key is not seen, as with any paging;
``Evidence.generation`` tells that it was.
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
    """Up to where the journal was told.

    Attributes:
        store_id: of the store.
        version: all of it, and of the commits before it.
        keys: so many of the entry behind it.
    """

    store_id: str
    version: int
    keys: int = 0

    def text(self) -> str:
        """For ``parse_token``."""
        return f"{self.store_id}-{self.version}-{self.keys}"


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    store_id: str
    table: str
    shape: int
    order: bytes


_LONG: Final = 300
"""Bytes of a cursor: longer ones are compressed, for a URL has an end. Keys that PostgreSQL has are either short enough
or easy to compress: its own indexes demand that."""

_DEFLATED: Final = b"\x78"
"""How zlib begins; a cursor that is not compressed begins as a list of four does."""
_LONGEST: Final = 1 << 24
"""Bytes of a cursor that was compressed: more than Kafka takes as a key."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Cursor).decode


def cursor(store_id: str, table: TableFacts, index: Sequence[str], order: bytes) -> str:
    """Behind a row or an index entry."""
    made = _encode(_Cursor(store_id, table.name, _shape(table, index), order))
    if len(made) > _LONG:
        made = zlib.compress(made, 9)
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def order_behind(text: str, store_id: str, table: TableFacts, index: Sequence[str]) -> bytes:
    """Where to go on.

    Raises:
        WrongCursor: no cursor, or one of another store, table or index, or of a former key of the table.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = _decode(_inflated(raw) if raw[:1] == _DEFLATED else raw)
    except (binascii.Error, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise WrongCursor("invalid cursor", remedy="take it as it was given, or begin without one") from error
    if (found.table, found.shape) != (table.name, _shape(table, index)):
        raise WrongCursor(
            f"the cursor is of {found.table}, by another index or another key, not of {table.name}"
            if found.table == table.name
            else f"the cursor is of table {found.table}, not of {table.name}",
            remedy="ask what it was given for, or begin without one",
        )
    if found.store_id != store_id:
        raise WrongCursor("the cursor is of another store: this one was made anew", remedy="begin without a cursor")
    return found.order + b"\0"


def _inflated(raw: bytes) -> bytes:
    """As long as a cursor can be, and no longer: whoever asks may have made it up."""
    return zlib.decompressobj().decompress(raw, _LONGEST)


def parse_token(text: str) -> Token:
    """What ``Token.text`` made.

    Raises:
        WrongCursor: it did not make this.
    """
    store_id, *numbers = text.rsplit("-", 2)
    if len(numbers) != 2 or not all(each.isascii() and each.isdigit() and len(each) < 20 for each in numbers):
        raise WrongCursor("invalid token", remedy="take it as it was given, or begin without one")
    return Token(store_id, *map(int, numbers))


def _shape(table: TableFacts, index: Sequence[str]) -> int:
    key = [table.key_kind, *(f"{column.name} {column.sql_type}" for column in table.key)]
    return zlib.crc32("\n".join([*key, "", *index]).encode())
