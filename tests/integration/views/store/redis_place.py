"""Where stores in Redis are under test: a prefix of their own."""

from __future__ import annotations

import uuid

import redis

from cdc.views.store.open import open_store
from cdc.views.store.port import Store


class Prefix:
    """Stores of one prefix in a Redis."""

    def __init__(self, url: str) -> None:
        self.prefix = f"t-{uuid.uuid4().hex}"
        self.name = f"{url}{'&' if '?' in url else '?'}prefix={self.prefix}"

    def open(self, *, read_only: bool = False) -> Store:
        return open_store(self.name, read_only=read_only)

    def raw(self) -> redis.Redis:
        """What other programs have: no more than a client."""
        return redis.Redis.from_url(self.name.replace(f"prefix={self.prefix}", ""))
