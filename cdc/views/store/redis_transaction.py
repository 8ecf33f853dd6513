"""A transaction of a store in Redis: kept here, staged there when it grows, and applied by one script.

Until ``commit`` nothing of it is under any key that readers look at. The script looks whether this writer is still the
one who may write, whether the version is the one that it knows, and whether all that was staged is there; then it
applies everything and changes the version, and nobody can ask in between.
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

_BLOCK_BYTES: Final = 16 << 20
"""What is kept here at most. A block of that size keeps Redis busy for a tenth of a second."""
_OVERHEAD: Final = 32
"""Of an entry, beside its value: about what key and bookkeeping take."""
_size: Final = Struct(">I").pack
_HEAD: Final = Struct(">?II")


def escaped(order: bytes) -> bytes:
    """The order so that two zeros end it: sorts as before, whatever follows."""
    return order.replace(b"\0", b"\0\1")


def unescaped(order: bytes) -> bytes:
    """What ``escaped`` was given."""
    return order.replace(b"\0\1", b"\0")


class Writer:
    """Who may write, and the versions.

    Args:
        client: of the server.
        place: of the store.
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
        """Hand changes over, of which nobody sees anything yet."""
        self._write(self._stage, blocks, changes)

    def commit(self, blocks: int, changes: bytes) -> int:
        """Apply these changes and those that were staged; returns the new version."""
        self._write(self._commit, blocks, changes, self.following)
        self._version, self.following = self.following, self.following + 1
        return self._version

    def values(self, key: str, texts: Sequence[bytes]) -> list[bytes | None]:
        """Fields of one hash."""
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
                remedy="let one process fill it; if no other one does, start this one again",
            )
        if said != "done":
            raise StoreUnavailable(
                f"{self.place.name} has lost what was written to it ({said})",
                remedy="cdc fills the view again by itself; a Redis that must keep it needs persistence "
                "(appendonly yes)",
            )


class _Changes:
    """Of one space, as far as they are still here. None stands for an entry that is deleted.

    Attributes:
        is_dropped: the space, in this transaction.
        is_told: Redis knows that.
        is_staged: there are entries in Redis, of this transaction.
    """

    def __init__(self) -> None:
        self.is_dropped = False
        self.is_told = False
        self.is_staged = False
        self.entries: dict[bytes, tuple[bytes, bytes | None]] = {}

    def packed(self, space: str) -> bytes:
        """As the scripts take them: ``redis_scripts.STAGE``."""
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
    """``Transaction`` in Redis."""

    def __init__(self, writer: Writer) -> None:
        self._writer: Final = writer
        self._changes: dict[str, _Changes] | None = {}
        self._bytes = 0
        self._blocks = 0
        self.version: Final = writer.following

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """As ``Transaction.get``."""
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
        """As ``Transaction.put``."""
        entries = self._of(space).entries
        size = 0
        for (order, text), value in items:
            entries[text] = (order, value)
            size += len(value)
        self._grow(size + len(items) * _OVERHEAD)

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        """As ``Transaction.delete``."""
        self._of(space).entries.update((key.text, (key.order, None)) for key in keys)
        self._grow(len(keys) * _OVERHEAD)

    def drop(self, space: str) -> None:
        """As ``Transaction.drop``."""
        changes = self._of(space)
        changes.is_dropped, changes.is_told, changes.is_staged = True, False, False
        changes.entries.clear()

    def commit(self) -> int:
        """As ``Transaction.commit``."""
        changes, self._changes = self._still_open(), None
        return self._writer.commit(self._blocks, _packed(changes))

    def abort(self) -> None:
        """As ``Transaction.abort``. What was staged stays until the next commit."""
        self._changes = None

    def _get_staged(self, space: str, texts: list[bytes], found: dict[bytes, bytes | None]) -> list[bytes]:
        """Adds what was staged; returns what was not."""
        rest = []
        for text, said in zip(texts, self._writer.values(f".staged:{space}", texts), strict=True):
            if said is None:
                rest.append(text)
            else:
                found[text] = said[5 + int.from_bytes(said[1:5], "big") :] if said[:1] == b"P" else None
        return rest

    def _grow(self, size: int) -> None:
        self._bytes += size
        if self._bytes < _BLOCK_BYTES:
            return
        changed, self._changes = self._still_open(), None  # has ended, if that goes wrong
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
                remedy="cdc tries again by itself, with the store opened anew",
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
