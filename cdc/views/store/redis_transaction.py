"""A transaction of a store in Redis: kept here, staged there when it grows, and applied by one script.

Until ``commit``, nothing of it is under a key that readers look at. The script first checks that this writer may still
write, that the store has the version that the writer knows, and that everything that was staged is there. Then it
applies all changes and sets the new version, and Redis answers nobody in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from cdc.base.errors import StoreRefused, StoreUnavailable
from cdc.views.store import redis_scripts
from cdc.views.store.port import Item, Key
from cdc.views.store.redis_link import RedisPlace, translated
from cdc.views.store.redis_lock import LEASE_MS, Taken

BLOCK_BYTES: Final = 16 << 20
"""How much is kept here at most. Redis is busy for a tenth of a second with a block of that size."""
_OVERHEAD: Final = 32
"""What an entry takes besides its value: about the size of its key and bookkeeping."""
_size: Final = Struct(">I").pack
_HEAD: Final = Struct(">?II")


def escaped(order: bytes) -> bytes:
    """Escapes an order so that two zero bytes end it. It sorts as before, whatever follows."""
    return order.replace(b"\0", b"\0\1")


def unescaped(order: bytes) -> bytes:
    """Reverses ``escaped``."""
    return order.replace(b"\0\1", b"\0")


class Writer:
    """Writes with the lock's token, and counts the versions.

    Args:
        client: the client of the server.
        place: the store's address.
        taken: the lock.
    """

    def __init__(self, client: Redis, place: RedisPlace, taken: Taken) -> None:
        self.place: Final = place
        self.following = taken.following
        self._version = taken.version
        self._token: Final = taken.token
        self._client: Final = client
        self._stage: Final = client.register_script(redis_scripts.STAGE)
        self._commit: Final = client.register_script(redis_scripts.COMMIT)

    def stage(self, blocks: int, changes: bytes) -> None:
        """Sends changes to Redis that nobody sees yet."""
        self._write(self._stage, blocks, changes)

    def commit(self, blocks: int, changes: bytes) -> int:
        """Applies these changes and those that were staged; returns the new version."""
        self._write(self._commit, blocks, changes, self.following)
        self._version, self.following = self.following, self.following + 1
        return self._version

    def values(self, key: str, texts: Sequence[bytes]) -> list[bytes | None]:
        """Returns fields of one hash."""
        try:
            found: Any = self._client.hmget(f"{self.place.prefix}:{key}", list(texts))
        except RedisError as error:
            raise translated(error, self.place) from None
        return list(found)

    def _write(self, script: Any, blocks: int, *arguments: Any) -> None:
        try:
            said = script(args=(self.place.prefix, self._token, LEASE_MS, self._version, blocks, *arguments)).decode()
        except RedisError as error:
            raise translated(error, self.place) from None
        if said == "another":
            raise StoreRefused(
                f"another writer took over the store in {self.place.name}",
                remedy="let only one process fill it; if no other one does, start this one again",
            )
        if said != "done":
            raise StoreUnavailable(
                f"{self.place.name} has lost what was written to it ({said})",
                remedy="wait: cdc fills the view again; to keep the view in Redis, turn persistence on "
                "(appendonly yes)",
            )


class _Changes:
    """The changes to one space that were not staged yet. None stands for a deleted entry.

    Attributes:
        is_dropped: whether this transaction has dropped the space.
        is_told: whether Redis knows that.
        is_staged: whether Redis holds entries of this transaction for the space.
    """

    def __init__(self) -> None:
        self.is_dropped = False
        self.is_told = False
        self.is_staged = False
        self.entries: dict[bytes, tuple[bytes, bytes | None]] = {}

    def packed(self, space: str) -> bytes:
        """Writes the changes in the form that the scripts read (``redis_scripts.STAGE``)."""
        puts: list[bytes] = []
        deletes: list[bytes] = []
        for text, (order, value) in self.entries.items():
            member = escaped(order)
            if value is None:
                deletes += (_size(len(text)), text, _size(len(member)), member)
            else:
                puts += (_size(len(text)), text, _size(len(member)), member, _size(len(value)), value)
        name = space.encode()
        is_dropped = self.is_dropped and not self.is_told
        head = _HEAD.pack(is_dropped, len(puts) // 6, len(deletes) // 4)
        return b"".join((_size(len(name)), name, head, *puts, *deletes))


class RedisTransaction:
    """A ``Transaction`` in Redis."""

    def __init__(self, writer: Writer) -> None:
        self._writer: Final = writer
        self._changes: dict[str, _Changes] | None = {}
        self._bytes = 0
        self._blocks = 0
        self.version: Final = writer.following

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """Returns the values of entries, including those that this transaction wrote."""
        changes = self._of(space)
        found: dict[bytes, bytes | None] = {}
        texts = []
        for key in keys:
            here = changes.entries.get(key.text)
            if here is None:
                texts.append(key.text)
            else:
                found[key.text] = here[1]
        if texts and changes.is_staged:
            texts = self._get_staged(space, texts, found)
        if texts and not changes.is_dropped:
            found.update(zip(texts, self._writer.values(space, texts), strict=True))
        return [found.get(key.text) for key in keys]

    def put(self, space: str, items: Sequence[Item]) -> None:
        """Writes entries; those that exist are replaced."""
        entries = self._of(space).entries
        size = 0
        for (order, text), value in items:
            entries[text] = (order, value)
            size += len(value)
        self._grow(size + len(items) * _OVERHEAD)

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        """Deletes entries; ignores those that do not exist."""
        self._of(space).entries.update((key.text, (key.order, None)) for key in keys)
        self._grow(len(keys) * _OVERHEAD)

    def drop(self, space: str) -> None:
        """Deletes a space with all its entries."""
        changes = self._of(space)
        changes.is_dropped, changes.is_told, changes.is_staged = True, False, False
        changes.entries.clear()

    def commit(self) -> int:
        """Makes all changes visible at once; returns the new version."""
        changes, self._changes = self._still_open(), None
        return self._writer.commit(self._blocks, _packed(changes))

    def abort(self) -> None:
        """Forgets the changes. What was staged stays in Redis until the next transaction stages or commits."""
        self._changes = None

    def _get_staged(self, space: str, texts: list[bytes], found: dict[bytes, bytes | None]) -> list[bytes]:
        """Adds the staged values to ``found``; returns the texts that were not staged."""
        rest = []
        for text, said in zip(texts, self._writer.values(f".staged:{space}", texts), strict=True):
            if said is None:
                rest.append(text)
            else:
                found[text] = said[5 + int.from_bytes(said[1:5], "big") :] if said[:1] == b"P" else None
        return rest

    def _grow(self, size: int) -> None:
        self._bytes += size
        if self._bytes < BLOCK_BYTES:
            return
        changed, self._changes = self._still_open(), None  # if staging fails, the transaction has ended
        self._writer.stage(self._blocks, _packed(changed))
        self._changes = changed
        self._blocks += 1
        self._bytes = 0
        for changes in changed.values():
            changes.is_staged = changes.is_staged or bool(changes.entries)
            changes.is_told = changes.is_dropped
            changes.entries.clear()

    def _of(self, space: str) -> _Changes:
        return self._still_open().setdefault(space, _Changes())

    def _still_open(self) -> dict[str, _Changes]:
        if self._changes is None:
            raise StoreUnavailable(
                f"the transaction of {self._writer.place.name} has ended; begin another one",
                remedy="cdc opens the store again and retries by itself",
            )
        return self._changes


def _packed(changed: Mapping[str, _Changes]) -> bytes:
    return b"".join(
        [
            changes.packed(space)
            for space, changes in changed.items()
            if changes.entries or (changes.is_dropped and not changes.is_told)
        ]
    )
