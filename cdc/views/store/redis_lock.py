"""Who writes a store in Redis: a lock that expires, and a token that decides.

The lock shows that its owner is alive. A thread renews it. When the owner is killed or sleeps, the lock expires, and
another process may take over. The token says who may write, and every script that writes checks it. So a writer that
slept can never commit after another took over. If none did, it goes on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final, NamedTuple
from uuid import uuid4

import structlog
from redis import Redis
from redis.exceptions import RedisError

from cdc.base.daemon.worker import Worker
from cdc.base.errors import StoreRefused
from cdc.views.store import redis_scripts
from cdc.views.store.redis_link import RedisPlace, connect, translated, why_unsafe

LEASE_MS: Final = 5000
"""How long the lock of a killed writer keeps others waiting."""
RENEW_S: Final = 1.0
_LOOK_S: Final = 0.05
LOOKS: Final = 10
"""Renewals between two checks of Redis's eviction policy."""
_FORMAT: Final = "2"

log = structlog.get_logger("cdc.view")


class Taken(NamedTuple):
    """What the new owner of the lock learns.

    Attributes:
        token: the token that its writes carry.
        version: the number of the last commit; 0 before the first.
        following: the number of the next commit. It was never used before, even if Redis has lost commits.
    """

    token: str
    version: int
    following: int


def take(client: Redis, place: RedisPlace) -> Taken | None:
    """Takes the lock. While another process holds it, waits until that process is seen alive (None) or its lease ends.

    Raises:
        StoreUnavailable: the server does not answer.
        StoreRefused: the store has another format.
    """
    script, token, left_ms = client.register_script(redis_scripts.LOCK), uuid4().hex, 1 << 62
    while True:
        try:
            found: Any = script(args=(place.prefix, token, LEASE_MS, _FORMAT))
        except RedisError as error:
            raise translated(error, place) from None
        outcome, *told = found
        if outcome == 1:
            version, now_s, now_us = (int(each) for each in told)
            return Taken(token, version, max(version + 1, now_s * 1_000_000 + now_us))
        if outcome == -2:
            raise translated(RedisError(f"EVICTED {told[0].decode()}"), place)
        if outcome < 0:
            raise StoreRefused(
                f"the store in {place.name} has format {told[0].decode()}, but this program reads format {_FORMAT}",
                remedy=f"delete the keys {place.prefix}:*, or choose another prefix",
            )
        if told[0] < 0 or told[0] > left_ms:  # the lock never expires, or was just renewed: its owner is alive
            return None
        left_ms = told[0]
        time.sleep(_LOOK_S)


class RedisLock:
    """A lock that was taken, and the thread that renews it."""

    def __init__(self, place: RedisPlace, token: str) -> None:
        # A client of its own: the writer's has a timeout as long as a commit may take.
        self._client: Final = connect(place, read_only=True)
        self._place: Final = place
        self._arguments: Final[tuple[Any, ...]] = (place.prefix, token, LEASE_MS)
        self._ended: Final = threading.Event()
        self._worker: Final = Worker(self._keep, name="lock of a store")
        self._worker.start()

    def check(self) -> None:
        """Raises the error that ended the thread."""
        self._worker.check()

    def release(self) -> None:
        """Lets another process write, at once if Redis can be reached."""
        self._ended.set()
        self._worker.join()
        with contextlib.suppress(RedisError):
            self._client.register_script(redis_scripts.UNLOCK)(args=self._arguments[:2])
        self._client.close()
        self.check()

    def _keep(self) -> None:
        renew, looks, told = self._client.register_script(redis_scripts.RENEW), 0, ""
        while not self._ended.wait(RENEW_S):
            # If Redis cannot be reached, the lock is lost, and the next commit reports it.
            with contextlib.suppress(RedisError):
                renew(args=self._arguments)
                looks += 1
                if looks % LOOKS == 0:
                    told = self._tell_of_policy(told)

    def _tell_of_policy(self, told: str) -> str:
        """Logs an unsafe policy, which may be set at any time. Nothing is lost before Redis is full, and a loss is
        noticed."""
        why = why_unsafe(self._client.info("memory"), self._place)
        if why is not None and why.message != told:
            log.error(why.message, remedy=why.remedy)
        return "" if why is None else why.message
