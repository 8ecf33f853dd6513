"""A store by the place that the configuration or a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cdc.base.errors import ConfigError
from cdc.base.extras import require
from cdc.views.store.port import Store

MEMORY: Final = "memory"


def open_store(place: str, *, password: str | None = None, read_only: bool = False) -> Store:
    """The store at a place; nothing is written before ``lock``.

    Args:
        place: the path of a folder on a disk of this machine; ``redis://…`` or ``rediss://…``, see ``RedisStore``; or
            ``memory``: in this process, gone when it ends.
        password: of Redis, for who does not want it in the address.
        read_only: refuse ``lock``.

    Raises:
        ConfigError: no such kind of place, or what it needs is not installed.
        StoreUnavailable: the server of the store does not answer.
        StoreRefused: it does not let us in, or would lose rows.
    """
    scheme, mark, _ = place.partition("://")
    require("view", f"the store {scheme}://…" if mark else f"the store {place}")
    # Imported here: who has a store of one kind need not have what the others want.
    if place == MEMORY:
        from cdc.views.store.memory import MemoryStore

        return MemoryStore()
    if scheme in ("redis", "rediss"):
        from cdc.views.store.redis_store import RedisStore

        return RedisStore(place, password=password, read_only=read_only)
    if mark:
        raise ConfigError(f"no store is of the kind {scheme}://", remedy="name a folder, redis://…, or memory")
    from cdc.views.store.lmdb_store import LmdbStore

    return LmdbStore(Path(place), read_only=read_only)
