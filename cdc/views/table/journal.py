"""What each commit changed: which keys of which tables, for those who follow a view. Pure.

The entry of a commit stands under its version in the space ``journal``. It names keys, not values: a follower reads the
rows as they are now. The entry is written in the transaction that changes the rows.

The journal is bounded in entries and in keys. Its head says where it begins and how much it holds. A link of a few
bytes leads from each entry to the next one, so the journal is trimmed without reading its entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from cdc.views.store.port import Item, Key, StoreSnapshot, Transaction
from cdc.views.table.facts import JOURNAL

MAX_ENTRIES: Final = 10_000
"""How many commits a follower may miss: hours of a quiet view, minutes of one that commits all the time."""

MAX_KEYS: Final = 100_000
"""How many keys all entries may hold; with about 60 bytes each, 6 MB. A follower that missed more reads the whole table
about as quickly. A commit that changes more keys than this names none: it resets its tables instead."""


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """A key that was changed.

    Attributes:
        order: the order of its row.
        text: the record's key.
    """

    order: bytes
    text: bytes


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """What one commit changed.

    Attributes:
        lsn: the LSN that the view shows since this commit; 0 when unknown.
        commit_ts: commit time of the newest transaction in it, µs since 1970; 0 when unknown.
        keys: the changed keys by table, each once.
        reset: tables whose keys are not named: followers read them anew.
    """

    lsn: int = 0
    commit_ts: int = 0
    keys: Mapping[str, Sequence[Changed]] = {}
    reset: tuple[str, ...] = ()


class JournalCommits(NamedTuple):
    """What the journal says about the commits after a version.

    Attributes:
        entries: by version, the oldest first; commits that changed no rows have none.
        version: the version up to which ``entries`` is complete.
        is_gap: whether some of these commits are no longer in the journal, or never were. The follower begins anew.
    """

    entries: Sequence[tuple[int, JournalEntry]]
    version: int
    is_gap: bool


class _Head(msgspec.Struct, array_like=True):
    """Beginning, end and size of the journal.

    Attributes:
        before: the newest version whose entry is gone.
        first: version of the oldest entry; 0 when there is none.
        last: version of the newest entry.
        last_keys: how many keys the newest entry has.
        entries: how many entries the journal holds.
        keys: how many keys they hold in all.
    """

    before: int
    first: int = 0
    last: int = 0
    last_keys: int = 0
    entries: int = 0
    keys: int = 0


class _Link(msgspec.Struct, frozen=True, array_like=True):
    """Leads from an entry to the next one: the version of that one, and how many keys this one has."""

    following: int
    keys: int


_HEAD: Final = Key(b"head", b"head")
_LINK: Final = b"link/"
LINKS_AT_ONCE: Final = 256

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(_Head)
_decode_link: Final = msgspec.msgpack.Decoder(_Link)
_decode_entry: Final = msgspec.msgpack.Decoder(JournalEntry)


def write(transaction: Transaction, entry: JournalEntry) -> None:
    """Adds what the transaction changes, and trims the oldest entries. Call it once for each transaction."""
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
    """Reads what was changed after a version.

    Args:
        snapshot: of the store.
        after: the version up to which the caller knows everything.
        limit: how many entries to return; call again with the answer's version for the rest.
    """
    found = snapshot.get(JOURNAL, [_HEAD])[0]
    before = 0 if found is None else _decode_head.decode(found).before
    newest = snapshot.version
    # A version after the newest: the store has lost commits that the follower saw.
    if after > newest or after < before:
        return JournalCommits((), newest, is_gap=True)
    items = snapshot.scan(JOURNAL, _order(after + 1), _order(newest + 1), limit)
    entries = [(int.from_bytes(each.key.order, "big"), _decode_entry.decode(each.value)) for each in items]
    # A page that is not full reaches to the newest commit, also where the last commits have no entry.
    return JournalCommits(entries, entries[-1][0] if len(entries) == limit else newest, is_gap=False)


def _trim(transaction: Transaction, head: _Head) -> list[Key]:
    """Takes the oldest entries out of the head until it is within bounds; returns the keys to delete."""
    gone: list[Key] = []
    links: dict[int, _Link] = {}
    while head.entries > MAX_ENTRIES or head.keys > MAX_KEYS:
        if head.first not in links:
            versions = range(head.first, head.first + LINKS_AT_ONCE)
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
    """The key of an entry's link. Like the head, links sort after all entries: the 8 bytes of a version begin with a
    zero for the first 10^16 commits, and these keys with a letter."""
    return Key(_LINK + _order(version), b"link/%d" % version)
