"""A store in Redis: for readers on many machines, and for programs that look rows up themselves.

One writer holds a lock that expires (``redis_lock.py``). A writer that has lost the lock to another can never commit.

Redis has no snapshots, so a query runs optimistically. Every answer has a version. If two of them differ, or the
version is not the one that the query was given at the start, the query runs again. Everything that it asked before is
then asked in one request, so the query ends even while commits follow one another.

Redis may lose commits: it starts empty, or a replica takes over that had not received everything. What is left is the
state after one commit, with its offsets, and the writer goes on from there. No version is used twice: after each
``lock``, versions continue from the time in µs. A reader that has seen a later commit waits until there is a newer one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from redis.exceptions import RedisError

from cdc.base.errors import StoreRefused, StoreUnavailable
from cdc.views.store import redis_scripts
from cdc.views.store.port import Answer, Item, Key, StoreSize, StoreSnapshot, Transaction
from cdc.views.store.redis_link import connect, parse, translated
from cdc.views.store.redis_lock import RedisLock, take
from cdc.views.store.redis_transaction import RedisTransaction, Writer, escaped, unescaped

Question: TypeAlias = tuple[Any, ...]
"""``("get", space, *texts)``, ``("count", space)`` or ``("scan", space, first, stop, limit, is backwards)``."""

_READ_S: Final = 10.0


class RedisStore:
    """A ``Store`` in Redis.

    Args:
        url: ``redis://user:password@host:6379/0?prefix=shop``, or ``rediss://`` for TLS.
        password: the password, if it is not in the address.
        read_only: whether to refuse ``lock``.

    Raises:
        ConfigError: the address is invalid.
        StoreUnavailable: the server does not answer.
        StoreRefused: the server refuses access, or could lose rows.
    """

    def __init__(self, url: str, *, password: str | None = None, read_only: bool = False) -> None:
        self._place: Final = parse(url, password)
        self._read_only: Final = read_only
        self._client: Final = connect(self._place, read_only=read_only)
        self._read: Final = self._client.register_script(redis_scripts.READ)
        self._seen = 0
        self._lock: RedisLock | None = None
        self._writer: Writer | None = None
        self._open: RedisTransaction | None = None

    def lock(self) -> bool:
        """Becomes the only writer; returns False if another one is alive. Waits until it is seen, or its lease ends."""
        if self._read_only:
            raise StoreRefused(
                f"the store in {self._place.name} was opened for reading only",
                remedy="let the process that fills the view write: cdc serve without --no-feed",
            )
        if self._lock is None:
            taken = take(self._client, self._place)
            if taken is None:
                return False
            self._lock = RedisLock(self._place, taken.token)
            self._writer = Writer(self._client, self._place, taken)
        return True

    def begin(self) -> Transaction:
        """Begins a transaction; one at a time, after ``lock``."""
        if self._lock is None or self._writer is None:
            raise StoreRefused(
                f"the store in {self._place.name} was not locked before it was written",
                remedy="report it with the log: this is a bug in cdc; nothing was written",
            )
        self._lock.check()
        if self._open is not None:
            self._open.abort()
        self._open = RedisTransaction(self._writer)
        return self._open

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """Runs a query on the store as one commit left it, again if a commit came between.

        Raises:
            StoreUnavailable: also when commits came so quickly that the query did not end within ten seconds.
        """
        snapshot = _Snapshot(self._ask, self._seen, {})
        deadline = time.monotonic() + _READ_S
        while True:
            try:
                answer = query(snapshot)
                if snapshot.is_true():
                    return answer
            except _Moved:
                pass
            except Exception:  # the query may have failed only because its answers are of different versions
                if snapshot.is_true():
                    raise
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self._place.name} changed all the time while it was read",
                    remedy="ask again; if it goes on, two bridges may fill this prefix: give each store its own",
                )
            snapshot = snapshot.again(self._seen)

    def version(self) -> int:
        """Returns the number of the last commit."""
        return self._ask(())[0]

    def size(self) -> StoreSize:
        """Returns how much of the server's memory this store takes."""
        prefix = self._place.prefix
        try:
            spaces: Any = self._client.smembers(f"{prefix}:.spaces")
            pipeline = self._client.pipeline(transaction=False)
            for space in spaces:
                for ending in ("", ":order"):
                    pipeline.memory_usage(f"{prefix}:{space.decode()}{ending}")
            return StoreSize(0, sum(each or 0 for each in pipeline.execute()))
        except RedisError as error:
            raise translated(error, self._place) from None

    def close(self) -> None:
        """Forgets an open transaction, and releases the lock."""
        if self._open is not None:
            self._open.abort()
        try:
            if self._lock is not None:
                lock, self._lock = self._lock, None
                lock.release()
        finally:
            self._client.close()

    def _ask(self, questions: Sequence[Question]) -> tuple[int, list[Any]]:
        """Asks all questions at one moment; returns the version, and the answers."""
        seen = self._seen  # read it before asking: other threads ask as well
        try:
            found, answers = self._read(args=[self._place.prefix, *_flat(questions)])
        except RedisError as error:
            raise translated(error, self._place) from None
        version = 0 if found is None else int(found)
        if version < seen:
            raise StoreUnavailable(
                f"{self._place.name} has lost commits: it was at {seen}, and is at {version}",
                remedy="wait: it can be read again when the process that fills it has committed",
            )
        self._seen = max(version, self._seen)
        return version, answers


def _flat(questions: Sequence[Question]) -> list[Any]:
    """Writes questions as arguments of the script."""
    flat: list[Any] = []
    for what, space, *arguments in questions:
        flat += (what, space, len(arguments), *arguments)
    return flat


class _Moved(Exception):
    """The store has another version than the query assumed."""


class _Snapshot:
    """The answers to one run of a query.

    Args:
        ask: asks the store.
        version: the version that the query is given; the first answer shows whether it is right.
        known: questions of that version that were asked already, with their answers.
    """

    def __init__(
        self, ask: Callable[[Sequence[Question]], tuple[int, list[Any]]], version: int, known: dict[Question, Any]
    ) -> None:
        self._ask = ask
        self._known = known
        self._asked: dict[Question, Any] = {}
        self._answered = version
        self._is_true = bool(known)
        self.version = version

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        found: list[bytes | None] = self._answer(("get", space, *[key.text for key in keys]))
        return found

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None, limit: int = 1000, *, backwards: bool = False
    ) -> list[Item]:
        first = b"[" + escaped(start) if start else b"-"
        end = b"+" if stop is None else b"(" + escaped(stop)
        members, values = self._answer(("scan", space, first, end, max(limit, 0), int(backwards)))
        keys = [member.split(b"\0\0", 1) for member in members]
        return [Item(Key(unescaped(key[0]), key[1]), value) for key, value in zip(keys, values, strict=True)]

    def count(self, space: str) -> int:
        return int(self._answer(("count", space)))

    def is_true(self) -> bool:
        """Whether the store has the version that the query was given. Call it when the query has ended."""
        if not self._is_true:
            self._is_true = self._ask(())[0] == self.version
        return self._is_true

    def again(self, version: int) -> _Snapshot:
        """Makes the snapshot for the next run, with everything that this run asked, from one moment."""
        if not self._asked:
            return _Snapshot(self._ask, version, {})
        if len(self._asked) == 1 and not self._is_true:  # a single answer is from one moment already
            return _Snapshot(self._ask, self._answered, self._asked)
        questions = list(self._asked)
        version, answers = self._ask(questions)
        return _Snapshot(self._ask, version, dict(zip(questions, answers, strict=True)))

    def _answer(self, question: Question) -> Any:
        if question in self._known:
            self._asked[question] = answer = self._known[question]
            return answer
        self._answered, [answer] = self._ask([question])
        self._asked[question] = answer
        if self._answered != self.version:
            raise _Moved
        self._is_true = True
        return answer
