"""Opens a store by its address in the configuration or on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cdc.base.errors import ConfigError
from cdc.base.extras import require
from cdc.views.store.port import Store

MEMORY: Final = "memory"


def open_store(place: str, *, password: str | None = None, read_only: bool = False) -> Store:
    """Opens the store at a place. Nothing is written before ``lock``.

    Args:
        place: the path of a folder on a disk of this machine; ``redis://…`` or ``rediss://…`` (``RedisStore``); or
            ``memory``: in this process, gone when it ends.
        password: the password for Redis, if it is not in the address.
        read_only: whether to refuse ``lock``.

    Raises:
        ConfigError: there is no such kind of place, or a package that it needs is not installed.
        StoreUnavailable: the store's server does not answer.
        StoreRefused: the server refuses access, or could lose rows.
    """
    scheme, mark, _ = place.partition("://")
    require("view", f"the store {scheme}://…" if mark else f"the store {place}")
    # Imported here, so that each kind of store needs only the packages of its own.
    if place == MEMORY:
        from cdc.views.store.memory import MemoryStore

        return MemoryStore()
    if scheme in ("redis", "rediss"):
        from cdc.views.store.redis_store import RedisStore

        return RedisStore(place, password=password, read_only=read_only)
    if mark:
        raise ConfigError(f"unknown kind of store {scheme}://", remedy="name a folder, redis://…, or memory")
    from cdc.views.store.lmdb_store import LmdbStore

    return LmdbStore(Path(place), read_only=read_only)
