"""What each commit changed: which keys of which tables, for those who follow a view. Pure.

An entry stands under the version of its commit, in the space ``journal``, and tells keys, not values: a follower reads
the rows as they are now. It is written in the transaction that changes the rows.

The journal is bounded in entries and in keys. Its head says where it begins and how much it holds, and links of a few
bytes lead from each entry to the next, so that it is trimmed without being read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from cdc.views.store.port import Item, Key, StoreSnapshot, Transaction
from cdc.views.table.facts import JOURNAL

MAX_ENTRIES: Final = 10_000
"""A follower may be away for that many commits: hours of a quiet view, and minutes of one that commits all the time."""

MAX_KEYS: Final = 100_000
"""Of some 60 bytes each: 6 MB. Who missed more reads the table anew about as quickly. A commit that changes more than
that tells no keys, but that its tables are to be read anew."""


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """A key that was changed.

    Attributes:
        order: of the row.
        text: of the record's key.
    """

    order: bytes
    text: bytes


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """What one commit changed.

    Attributes:
        lsn: that the view shows since; 0 when unknown.
        commit_ts: of the newest transaction in it, µs since 1970; 0 when unknown.
        keys: by table, each key once.
        reset: tables whose keys are not told: followers read them anew.
    """

    lsn: int = 0
    commit_ts: int = 0
    keys: Mapping[str, Sequence[Changed]] = {}
    reset: tuple[str, ...] = ()


class JournalCommits(NamedTuple):
    """What the journal tells of the commits after a version.

    Attributes:
        entries: by version, the oldest first; commits that changed nothing have none.
        version: up to which everything is told.
        is_gap: what came after the version is not known any more, or was never told here: begin anew.
    """

    entries: Sequence[tuple[int, JournalEntry]]
    version: int
    is_gap: bool


class _Head(msgspec.Struct, array_like=True):
    """Where the journal begins and ends.

    Attributes:
        before: the greatest version of which nothing is told any more.
        first: version of the oldest entry; 0 when there is none.
        last: version of the newest.
        last_keys: how many keys that one has.
        entries: that the journal holds.
        keys: in all of them.
    """

    before: int
    first: int = 0
    last: int = 0
    last_keys: int = 0
    entries: int = 0
    keys: int = 0


class _Link(msgspec.Struct, frozen=True, array_like=True):
    """From an entry to the next one: version of that, and how many keys this one has."""

    following: int
    keys: int


_HEAD: Final = Key(b"head", b"head")
_LINK: Final = b"link/"
_LINKS_AT_ONCE: Final = 256

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(_Head)
_decode_link: Final = msgspec.msgpack.Decoder(_Link)
_decode_entry: Final = msgspec.msgpack.Decoder(JournalEntry)


def write(transaction: Transaction, entry: JournalEntry) -> None:
    """Tell what this transaction changes, once for each; forget the oldest that is too much."""
    size = sum(len(keys) for keys in entry.keys.values())
    if size > MAX_KEYS:
        entry, size = JournalEntry(entry.lsn, entry.commit_ts, {}, tuple(sorted({*entry.reset, *entry.keys}))), 0
    if not size and not entry.reset:
        return
    version = transaction.version
    found = transaction.get(JOURNAL, [_HEAD])[0]
    head = _Head(version - 1) if found is None else _decode_head.decode(found)
    items = [Item(_key(version), _encode(entry))]
    if head.entries:
        items.append(Item(_link_key(head.last), _encode(_Link(version, head.last_keys))))
    else:
        head.first = version
    head.last, head.last_keys = version, size
    head.entries += 1
    head.keys += size
    transaction.put(JOURNAL, items)
    transaction.delete(JOURNAL, _trim(transaction, head))
    transaction.put(JOURNAL, [Item(_HEAD, _encode(head))])


def read(snapshot: StoreSnapshot, after: int, limit: int = 100) -> JournalCommits:
    """What was changed after a version.

    Args:
        snapshot: of the store.
        after: a version that the asker knows all of.
        limit: of entries; ask again from the answer's version for the rest.
    """
    found = snapshot.get(JOURNAL, [_HEAD])[0]
    before = 0 if found is None else _decode_head.decode(found).before
    newest = snapshot.version
    if after > newest or after < before:
        return JournalCommits((), newest, is_gap=True)
    items = snapshot.scan(JOURNAL, _order(after + 1), _order(newest + 1), limit)
    entries = [(int.from_bytes(each.key.order, "big"), _decode_entry.decode(each.value)) for each in items]
    return JournalCommits(entries, entries[-1][0] if len(entries) == limit else newest, is_gap=False)


def _trim(transaction: Transaction, head: _Head) -> list[Key]:
    """Take the oldest entries out of the head, for as long as it is too much; returns what is to be deleted."""
    gone: list[Key] = []
    links: dict[int, _Link] = {}
    while head.entries > MAX_ENTRIES or head.keys > MAX_KEYS:
        if head.first not in links:
            versions = range(head.first, head.first + _LINKS_AT_ONCE)
            found = transaction.get(JOURNAL, [_link_key(version) for version in versions])
            pairs = zip(versions, found, strict=True)
            links = {version: _decode_link.decode(raw) for version, raw in pairs if raw is not None}
        link = links[head.first]
        gone += (_key(head.first), _link_key(head.first))
        head.before, head.first = head.first, link.following
        head.entries -= 1
        head.keys -= link.keys
    return gone


def _order(version: int) -> bytes:
    return version.to_bytes(8, "big")


def _key(version: int) -> Key:
    return Key(_order(version), b"%d" % version)


def _link_key(version: int) -> Key:
    """Behind the entries, as the head: versions begin with a zero for the first 10^16 commits."""
    return Key(_LINK + _order(version), b"link/%d" % version)
