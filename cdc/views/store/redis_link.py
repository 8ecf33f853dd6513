"""The connection of a store in Redis: reading its address, checking the server, and translating errors."""

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
READER_TIMEOUT_S: Final = 5.0
_WRITER_TIMEOUT_S: Final = 60.0
"""A commit of a million rows takes Redis several seconds."""

_NO_MEMORY: Final = "give Redis more memory (maxmemory), or view fewer tables"
_BY_ITSELF: Final = "wait: cdc tries again by itself"
_WORDS: Final = (
    ("OutOfMemory|OOM", StoreFull, "is full", _NO_MEMORY),
    ("MISCONF", StoreFull, "cannot write its own files", "look for the reason in the log of Redis: often a full disk"),
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
        "has lost keys of this store; it throws keys away if it is full and its maxmemory-policy allows that",
        "CONFIG SET maxmemory-policy noeviction; then delete all keys with this prefix, and the view is filled again",
    ),
    ("WRONGTYPE", StoreRefused, "has keys of another program under this prefix", "choose another prefix: ?prefix=…"),
)
"""Parts of the name of the client's error or of the server's message; our error for it, its meaning, and the remedy."""


class RedisPlace(NamedTuple):
    """The address of a store in Redis.

    Attributes:
        url: the address without our own options.
        prefix: the prefix of all its keys.
        name: the address for messages, without user and password.
        password: the password, if it is not in ``url``.
    """

    url: str
    prefix: str
    name: str
    password: str | None = None


def parse(url: str, password: str | None = None) -> RedisPlace:
    """Reads an address: ``redis://user:password@host:6379/0?prefix=shop``.

    Raises:
        ConfigError: it is invalid.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", _PREFIX)
    try:
        port = parts.port or 6379
    except ValueError as error:
        raise ConfigError(
            f"invalid address of the Redis store: {error}",
            remedy="write redis://user:password@host:6379/0?prefix=shop, or rediss:// for TLS",
        ) from None
    if parts.scheme not in SCHEMES or not parts.hostname or not prefix:
        raise ConfigError(
            "invalid address of the Redis store: it needs a scheme, a host and a prefix that is not empty",
            remedy="write redis://user:password@host:6379/0?prefix=shop, or rediss:// for TLS",
        )
    name = f"{parts.scheme}://{parts.hostname}:{port}{parts.path} (prefix {prefix})"
    return RedisPlace(parts._replace(query=urlencode(options)).geturl(), prefix, name, password)


def connect(place: RedisPlace, *, read_only: bool) -> Redis:
    """Connects to the server and checks it.

    Raises:
        StoreUnavailable: the server does not answer.
        StoreRefused: the server refuses access, or could lose rows.
        ConfigError: the address has unknown options.
    """
    timeout_s = READER_TIMEOUT_S if read_only else _WRITER_TIMEOUT_S
    try:
        # No retries in the client: a commit that succeeded could be reported as an error the second time.
        client = Redis.from_url(
            place.url,
            password=place.password,
            socket_timeout=timeout_s,
            socket_connect_timeout=READER_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        with told(f"Redis at {place.name}", "to answer", f"up to {timeout_s:g} s"):
            facts = client.info()
    except RedisError as error:
        raise translated(error, place) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"invalid address {place.name}: {error}",
            remedy="write redis://user:password@host:6379/0?prefix=shop, or rediss:// for TLS",
        ) from None
    _accept(facts, place)
    return client


def translated(error: RedisError, place: RedisPlace) -> CdcError:
    """Translates an error of the client into one of ours."""
    said = str(error)
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return StoreRefused(
            f"Redis at {place.name} refuses access: {said}",
            remedy=f"give the user its password, and the rights: ~{place.prefix}:* +@all -@dangerous +info",
        )
    # For an error in a script, older servers name its kind within the message, newer ones at its beginning.
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
        f"Redis at {place.name} refuses: {said}", remedy="correct what it names, in Redis or in the store's address"
    )


def _accept(facts: dict[str, Any], place: RedisPlace) -> None:
    """Checks the server by what ``INFO`` says. Hosted Redis often forbids ``CONFIG GET``."""
    if facts.get("redis_mode") == "cluster":
        raise StoreRefused(
            f"Redis at {place.name} is a cluster: a store changes all its keys at once, which needs a single server",
            remedy="name a Redis that is not a cluster; it may have replicas",
        )
    if why := why_unsafe(facts, place):
        raise why


def why_unsafe(facts: dict[str, Any], place: RedisPlace) -> StoreRefused | None:
    """Returns an error if ``INFO`` says that Redis would throw rows away when it is full."""
    policy = str(facts.get("maxmemory_policy", "noeviction"))
    if not policy.startswith("allkeys"):
        return None
    return StoreRefused(
        f"Redis at {place.name} may throw away rows when it is full: maxmemory-policy {policy}",
        remedy="CONFIG SET maxmemory-policy noeviction (volatile-… will do too: no row expires)",
    )
