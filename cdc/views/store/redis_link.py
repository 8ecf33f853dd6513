"""The connection of a store in Redis: what its address says, whether that server will do, and what its errors mean."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisError,
)
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import TimeoutError as LinkTimeout
from redis.retry import Retry

from cdc.base.errors import CdcError, ConfigError, StoreFull, StoreRefused, StoreUnavailable
from cdc.base.long_wait import told

SCHEMES: Final = ("redis", "rediss")
_PREFIX: Final = "cdc"
_READER_TIMEOUT_S: Final = 5.0
_WRITER_TIMEOUT_S: Final = 60.0
"""A commit of a million rows takes Redis some seconds."""

_NO_MEMORY: Final = "give Redis more memory (maxmemory), or view fewer tables"
_BY_ITSELF: Final = "wait: cdc tries again by itself"
_WORDS: Final = (
    ("OutOfMemory|OOM", StoreFull, "is full", _NO_MEMORY),
    ("MISCONF", StoreFull, "cannot write its own files", "see why in the log of Redis: mostly its disk is full"),
    (
        "NOREPLICAS",
        StoreUnavailable,
        "has fewer replicas than it wants",
        "start its replicas, or lower min-replicas-to-write",
    ),
    ("ReadOnly|READONLY", StoreUnavailable, "is a replica", "name the primary"),
    ("BusyLoading|LOADING", StoreUnavailable, "still loads its data", _BY_ITSELF),
    ("BUSY ", StoreUnavailable, "is busy with a large commit", _BY_ITSELF),
    (
        "MasterDown|MASTERDOWN",
        StoreUnavailable,
        "waits for its primary",
        "start the primary, or name it in the address",
    ),
    (
        "EVICTED",
        StoreRefused,
        "has lost keys of this store, as when it is full and its maxmemory-policy lets it throw keys away",
        "CONFIG SET maxmemory-policy noeviction; then delete all keys with this prefix, and the view is filled again",
    ),
    ("WRONGTYPE", StoreRefused, "has keys of another program under this prefix", "choose another prefix: ?prefix=…"),
)
"""What the client's class is named after, or what the words of the server contain; what that is, and how to say it."""


class RedisPlace(NamedTuple):
    """Where a store in Redis is.

    Attributes:
        url: without what is ours.
        password: that is not in it.
        prefix: of all its keys.
        name: for people; without user and password.
    """

    url: str
    prefix: str
    name: str
    password: str | None = None


def parse(url: str, password: str | None = None) -> RedisPlace:
    """What an address says: ``redis://user:password@host:6379/0?prefix=shop``.

    Raises:
        ConfigError: it is none.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", _PREFIX)
    try:
        port = parts.port or 6379
    except ValueError as error:
        raise ConfigError(
            f"the address of the Redis store: {error}",
            remedy="write redis://user:password@host:6379/0?prefix=shop, or rediss:// for TLS",
        ) from None
    if parts.scheme not in SCHEMES or not parts.hostname or not prefix:
        raise ConfigError(
            "the address of a store in Redis has a scheme and a host",
            remedy="write redis://user:password@host:6379/0?prefix=shop, or rediss:// for TLS",
        )
    name = f"{parts.scheme}://{parts.hostname}:{port}{parts.path} (prefix {prefix})"
    return RedisPlace(parts._replace(query=urlencode(options)).geturl(), prefix, name, password)


def connect(place: RedisPlace, *, read_only: bool) -> Redis:
    """A client of the server, after a look at it.

    Raises:
        StoreUnavailable: it does not answer.
        StoreRefused: it does not let us in, or would lose rows.
        ConfigError: the address has options that there are not.
    """
    timeout_s = _READER_TIMEOUT_S if read_only else _WRITER_TIMEOUT_S
    try:
        # Never tried again behind our back: what was a commit once might be an error the second time.
        client = Redis.from_url(
            place.url,
            password=place.password,
            socket_timeout=timeout_s,
            socket_connect_timeout=_READER_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        with told(f"Redis at {place.name}", "to answer", f"up to {timeout_s:g} s"):
            facts = client.info()
    except RedisError as error:
        raise translated(error, place) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the address of {place.name}: {error}",
            remedy="write redis://user:password@host:6379/0?prefix=shop, or rediss:// for TLS",
        ) from None
    _accept(facts, place)
    return client


def translated(error: RedisError, place: RedisPlace) -> CdcError:
    """What an error of the client means for us."""
    said = str(error)
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return StoreRefused(
            f"Redis at {place.name} does not let us: {said}",
            remedy=f"give the user its password, and the rights: ~{place.prefix}:* +@all -@dangerous +info",
        )
    # Of an error in a script, older servers tell the kind within the words, newer ones at their beginning.
    told = f"{type(error).__name__} {said}"
    for words, kind, meaning, remedy in _WORDS:
        if any(word in told for word in words.split("|")):
            return kind(f"Redis at {place.name} {meaning}: {said}", remedy=remedy)
    if isinstance(error, (LinkError, LinkTimeout)):
        return StoreUnavailable(
            f"Redis at {place.name} does not answer: {said}",
            remedy="cdc tries again by itself; if that does not help: is Redis up, and the store's address right?",
        )
    return StoreRefused(
        f"Redis at {place.name} refuses: {said}", remedy="correct what it says, in Redis or in the store's address"
    )


def _accept(facts: dict[str, Any], place: RedisPlace) -> None:
    """By what ``INFO`` tells; ``CONFIG GET`` is forbidden by many who rent out Redis."""
    if facts.get("redis_mode") == "cluster":
        raise StoreRefused(
            f"Redis at {place.name} is a cluster: a store changes all its keys at once, which needs a single server",
            remedy="name a Redis that is not a cluster; it may have replicas",
        )
    if why := why_unsafe(facts, place):
        raise why


def why_unsafe(facts: dict[str, Any], place: RedisPlace) -> StoreRefused | None:
    """Of what ``INFO`` tells of memory: Redis would throw rows away."""
    policy = str(facts.get("maxmemory_policy", "noeviction"))
    if not policy.startswith("allkeys"):
        return None
    return StoreRefused(
        f"Redis at {place.name} may throw away rows when it is full: maxmemory-policy {policy}",
        remedy="CONFIG SET maxmemory-policy noeviction (volatile-… will do too: no row expires)",
    )
