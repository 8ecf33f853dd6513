"""Another process that has a store open, and does what a test tells it, line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil

from cdc.base.errors import CdcError
from cdc.views.store.open import open_store
from cdc.views.store.port import Item, Key, Store, StoreSnapshot, Transaction

SPACES: Final = ("left", "right")


def key(number: int) -> Key:
    order = number.to_bytes(8, "big")
    return Key(order, order.hex().encode())


def item(number: int, value: bytes = b"") -> Item:
    return Item(key(number), value or b"value of %d" % number)


def look(snapshot: StoreSnapshot) -> dict[str, Any]:
    """The version, and of each space: how many entries, and the value of entry 0."""
    first = [snapshot.get(space, [key(0)])[0] for space in SPACES]
    return {
        "version": snapshot.version,
        "counts": [snapshot.count(space) for space in SPACES],
        "first": [None if value is None else value.decode() for value in first],
    }


class Elsewhere:
    """The process, from the test's side."""

    def __init__(self, place: str) -> None:
        command = [sys.executable, "-m", "tests.integration.views.store.elsewhere", place]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, what: str, **how: Any) -> None:
        """Do not wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"what": what, **how}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return json.loads(line)

    def ask(self, what: str, **how: Any) -> Any:
        self.tell(what, **how)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def elsewhere(place: str) -> Iterator[Elsewhere]:
    other = Elsewhere(place)
    try:
        yield other
    finally:
        other.kill()
        assert other.process.stdin is not None
        assert other.process.stdout is not None
        other.process.stdin.close()
        other.process.stdout.close()


class _Servant:
    """The same, from the inside: one method for each thing that it may be told."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._transaction: Transaction | None = None

    def lock(self) -> bool:
        return self._store.lock()

    def read(self) -> dict[str, Any]:
        return self._store.read(look)

    def begin(self) -> int:
        self._transaction = self._store.begin()
        return self._transaction.version

    def put(self, numbers: tuple[int, int], size: int = 100, salt: str = "") -> int:
        """In both spaces. Returns the most memory that this process had of its own, in bytes."""
        assert self._transaction is not None
        for first in range(*numbers, 1000):
            some = range(first, min(first + 1000, numbers[1]))
            items = [item(number, f"{salt}{number:0{size}}".encode()) for number in some]
            for space in SPACES:
                self._transaction.put(space, items)
        memory = psutil.Process().memory_info()
        return int(memory.rss - getattr(memory, "shared", 0))

    def commit(self) -> int:
        assert self._transaction is not None
        return self._transaction.commit()

    def hold(self) -> None:
        """Reads, and stays in the query until it is told anything."""

        def query(snapshot: StoreSnapshot) -> None:
            _say(look(snapshot))
            sys.stdin.readline()

        self._store.read(query)

    def race(self) -> None:
        """Commits for ever; says each version after it is there."""
        while True:
            transaction = self._store.begin()
            for space in SPACES:
                transaction.put(space, [item(0, b"%d" % transaction.version), item(transaction.version)])
            _say(transaction.commit())


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(place: str) -> None:
    servant = _Servant(open_store(place))
    for line in sys.stdin:
        told = json.loads(line)
        try:
            _say(getattr(servant, told.pop("what"))(**told))
        except CdcError as error:
            _say({"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    main(sys.argv[1])
