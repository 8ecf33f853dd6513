"""Who makes the load: threads that outlive the death of their server, and stand still when told to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

import psycopg

from tests.soak.figures import Load
from tests.soak.profile import Connection, Profile
from tests.soak.profiles import PROFILES
from tests.support import bank
from tests.support.servers import Database

_ROUND_S: Final = 0.5
_ROLLED_BACK: Final = 0.15
_LOCK_TIMEOUT: Final = "-c lock_timeout=2s"
_REFUSED: Final = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
    psycopg.IntegrityError,
    psycopg.InternalError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
)
"""What two sessions that get in each other's way are told."""


class Worker(bank.Guarded):
    """One session of the profiles' load.

    Attributes:
        turn: the profile whose turn it is.
        goes_on: cleared while the replica is too far away for more.
    """

    def __init__(self, number: int, source: Database, profiles: Mapping[str, Profile], seed: int) -> None:
        super().__init__(f"load {number}")
        self.still = threading.Lock()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.turn = next(iter(profiles))
        self.loads = {name: Load() for name in profiles}
        self._source, self._profiles = source, profiles
        self._random = random.Random(seed)
        self._connection: Connection | None = None

    def work(self) -> None:
        """Transactions of one profile, for half a second or for one transaction that takes longer."""
        until = time.monotonic() + _ROUND_S
        with self.still:
            while self.goes_on.is_set() and time.monotonic() < until:
                self._transaction()

    def _transaction(self) -> None:
        if self._connection is None:
            self._connection = self._source.connect(connect_timeout=5, options=_LOCK_TIMEOUT)
        load, profile = self.loads[self.turn], self._profiles[self.turn]
        rolls_back = self._random.random() < _ROLLED_BACK
        try:
            with self._connection.transaction(force_rollback=rolls_back):
                rows = profile.change(self._connection, self._random)
        except psycopg.errors.SyntaxError:
            raise
        except _REFUSED:
            load.refused += 1
            return
        load.rolled_back += rolls_back
        load.transactions += not rolls_back
        load.rows += 0 if rolls_back else rows

    def lost(self) -> None:
        """Connect again in the next round, if there is one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Clerk(bank.Writer):
    """The writer of the bank, whom one can ask to stand still."""

    def __init__(self, source: Database, seed: int) -> None:
        super().__init__(source, seed)
        self.still = threading.Lock()

    def work(self) -> None:
        """One transaction."""
        with self.still:
            super().work()


class Crew:
    """All who write: two sessions of the profiles, in which DDL of one meets transactions of the other, and a clerk.

    Args:
        names: of the profiles, which take turns.
    """

    def __init__(self, source: Database, names: list[str], rng: random.Random) -> None:
        profiles = {name: PROFILES[name]() for name in names}
        with source.connect() as connection:
            for profile in profiles.values():
                profile.create(connection)
        self._workers = [Worker(number, source, profiles, rng.randrange(10**6)) for number in range(2)]
        self._clerk = Clerk(source, rng.randrange(10**6))
        self._all: list[Worker | Clerk] = [*self._workers, self._clerk]

    def start(self) -> None:
        """Begin."""
        for each in self._all:
            each.start()

    def take_turn(self, name: str, *, goes_on: bool) -> None:
        """It is the turn of this profile; whether the others may go on, or the replica is to catch up first."""
        for each in self._workers:
            each.turn = name
            (each.goes_on.set if goes_on else each.goes_on.clear)()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Between two transactions of each."""
        with ExitStack() as locks:
            for each in self._all:
                locks.enter_context(each.still)
            yield

    def look(self) -> None:
        """See that nobody has died.

        Raises:
            BaseException: what somebody died of.
        """
        for each in self._all:
            if not each.is_alive():
                each.finish()
                raise AssertionError(f"{each.name} has ended")

    def finish(self) -> None:
        """Stop, and raise what somebody died of."""
        for each in self._all:
            each.finish()

    def loads(self) -> dict[str, Load]:
        """What all of them committed, by profile."""
        total = {"bank": Load(self._clerk.committed)}
        for worker in self._workers:
            for name, load in worker.loads.items():
                one = total.setdefault(name, Load())
                one.transactions += load.transactions
                one.rows += load.rows
                one.rolled_back += load.rolled_back
                one.refused += load.refused
        return total
