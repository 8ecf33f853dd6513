"""A deployment in which a process is stopped at a step, disturbed, let go, and in the end compared; again and again."""

from __future__ import annotations

import random
import signal
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import psycopg

from cdc.base.lsn import LSN
from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillProgress, BackfillRequest
from cdc.kafka.publish.requests import write_request
from cdc.lab.proof.comparison import describe, difference, pinned, table_rows, topic_rows
from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import read_topics
from tests.support.deployment import Deployment
from tests.support.forked import ForkedCdc
from tests.support.steps.world import Writer, names
from tests.support.waiting import eventually

_SETTLE_S: Final = 60.0
_STARTS: Final = 12
"""So often may the processes of one trial be started again: what needs more does not come to rest."""


class Trial:
    """A deployment whose processes are forked, with the writer that changes its tables. It lives through many trials.

    Attributes:
        armed: the process that is to stop at a step.
        later: what to do when the disturbed process was let go.
        ends: how processes ended that nobody killed.
    """

    def __init__(self, deployment: Deployment, rng: random.Random) -> None:
        self.deployment = deployment
        self.source = deployment.source
        deployment.bridge = self.bridge = ForkedCdc("run", deployment.config, deployment.bridge.log)
        deployment.sink = self.sink = ForkedCdc("sink", deployment.config, deployment.sink.log)
        self.armed = self.bridge
        self.rng = rng
        self.writer = Writer(self.source, rng)
        self.later: list[Callable[[], None]] = []
        self.ends: list[str] = []
        self._starts = 0

    def begin(self, armed: str) -> None:
        """A trial begins: this process, ``bridge`` or ``sink``, is the one that will be armed."""
        self.armed = self.sink if armed == "sink" else self.bridge
        self._starts = 0
        self.ends.clear()

    @property
    def publication(self) -> str:
        """Name of the bridge's publication."""
        return f"cdc_{self.deployment.name}"

    def second_bridge(self) -> ForkedCdc:
        """Another bridge with the same configuration."""
        return ForkedCdc("run", self.deployment.config, self.deployment.directory / "second.log")

    def slot_is_active(self) -> bool:
        """Whether somebody reads from the slot."""
        found = self.source.execute(
            f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.deployment.slot()}'"
        )
        return bool(found and found[0][0])

    def in_source(self, text: str) -> None:
        """Run statements; a table that the stopped process reads from is waited for until it goes on."""
        try:
            with self.source.connect(options="-c lock_timeout=500ms") as connection:
                connection.execute(text.encode())
        except psycopg.errors.LockNotAvailable:
            self.later.append(partial(self._wait_until_done, text))

    def request(self, *tables: str, sweep: bool = True) -> str:
        """Ask the running bridge for a backfill; the request's id."""
        request = BackfillRequest(uuid.uuid4().hex, "start", tables, sweep=sweep)
        write_request({"bootstrap.servers": self.deployment.bootstrap}, progress_topic(self.deployment.name), request)
        return request.request

    def go_on(self) -> None:
        """Let the stopped process go on, and do what was to be done then."""
        if self.armed.pid and not self.armed.ended:
            self.armed.signal(signal.SIGCONT)
        for action in self.later:
            action()
        self.later.clear()

    def settle(self, mend: tuple[str, ...], *, is_noticed_late: bool) -> None:
        """Bring everything to rest and compare all sides by full rows.

        Args:
            mend: tables whose rows changed without a word in the stream: they are backfilled, as docs/exceptions.md
                says.
            is_noticed_late: what was done is seen by the watch of the tables some seconds later; until then a table
                may be called whole that is not.

        Raises:
            AssertionError: a process stopped for good, nothing comes to rest, or the sides differ.
        """
        self.writer.touch_all()
        self._wait_whole(is_strict=not (mend or is_noticed_late))
        if mend := tuple(each for each in mend if each in names(self.source)):
            self._wait_whole(self.request(*mend), mend)
        if is_noticed_late:
            eventually(lambda: not self._difference(), _SETTLE_S, lambda: f"{self._difference()}\n{self.logs()}")
        found = self._difference(with_replica=True)
        assert not found, f"{found}\n{self.logs()}"

    def _difference(self, tables: Sequence[str] = (), *, with_replica: bool = False) -> str:
        """How source, folded topic and, at the sink's cut, the replica differ; of all tables or of these."""
        self.keep_running()
        deployment, tables = self.deployment, tables or names(self.source)
        if with_replica:
            self._wait_mirrored(tables)
        told = []
        with pinned(self.source.dsn) as source, pinned(deployment.replica.dsn) as replica:
            shapes = [describe(source, table) for table in tables]
            copies = read_topics(deployment.bootstrap, [deployment.topic(each) for each in tables])
            for shape in shapes:
                rows, copy = table_rows(source, shape), copies[deployment.topic(shape.table)]
                told += [f"{shape.table} goes back: {where}" for where in copy.backward[:3]]
                try:
                    found = [difference("topic", rows, topic_rows(copy.live, shape), shape)]
                    if with_replica:
                        found.append(difference("replica", rows, table_rows(replica, shape), shape))
                except FormError as error:
                    told.append(str(error))
                else:
                    told += [f"{shape.table}: {each}" for each in found if each is not None]
        return "\n".join(told)

    def logs(self) -> str:
        """The ends of the processes' logs."""
        return "\n".join([*self.ends, self.bridge.tail(), self.sink.tail()])

    def keep_running(self) -> None:
        """Start what ended; nothing may end by itself but for what we did to it.

        Raises:
            AssertionError: a process refuses to go on, or has a bug.
        """
        for process in (self.bridge, self.sink):
            if process.ended:
                code = process.wait()
                self.ends.append(f"cdc {process.command} ended with {code}")
                assert code in (0, -signal.SIGKILL, -signal.SIGTERM), f"{self.ends[-1]}\n{self.logs()}"
            if not process.pid:
                self._starts += 1
                assert self._starts <= _STARTS, f"does not come to rest\n{self.logs()}"
                process.start()
            elif process.is_stopped:  # it came to its step later than it was waited for
                process.signal(signal.SIGCONT)

    def _wait_whole(self, request: str = "", tables: Sequence[str] = (), *, is_strict: bool = True) -> None:
        """Wait until everything is published and all tables are whole, these by that request.

        With ``is_strict`` none may be called whole at any moment that is not.
        """
        compared: set[str] = set()
        target = self.deployment.now()

        def whole() -> bool:
            self.keep_running()
            progress = self.deployment.progress()
            if progress is None or progress.partial is not None or progress.lsn < target:
                return False
            records, every = self.deployment.backfills(), names(self.source)
            ready = [each for each in every if each in records and self._is_whole(records[each])]
            if is_strict and (fresh := [each for each in ready if each not in compared and not request]):
                found = self._difference(fresh)
                assert not found, f"called whole: {found}\n{self.logs()}"
                compared.update(fresh)
            return ready == every and all(records[each].request == request for each in tables)

        eventually(whole, _SETTLE_S, lambda: self._not_whole(target))

    def _is_whole(self, record: BackfillProgress) -> bool:
        return record.whole and record.state == "done"

    def _not_whole(self, target: LSN) -> str:
        states = {name: (each.state, each.whole, each.reason) for name, each in self.deployment.backfills().items()}
        return f"all published to {target} and whole: {self.deployment.progress()} {states}\n{self.logs()}"

    def _wait_mirrored(self, tables: Sequence[str]) -> None:
        target = self.deployment.now()

        def mirrored() -> bool:
            self.keep_running()
            cut = self.deployment.cut()
            if cut is None or cut < target:
                return False
            topics = [self.deployment.topic(each) for each in tables]
            states = self.deployment.replica.execute("SELECT topic, state FROM cdc.mirrored_table")
            return all(dict(states).get(topic) == "exact" for topic in topics)

        def why() -> str:
            return f"{self.deployment.replica.execute('SELECT * FROM cdc.mirrored_table')}\n{self.logs()}"

        eventually(mirrored, _SETTLE_S, why)

    def _wait_until_done(self, text: str) -> None:
        eventually(lambda: self._done(text))

    def _done(self, text: str) -> bool:
        try:
            with self.source.connect(options="-c lock_timeout=500ms") as connection:
                connection.execute(text.encode())
        except psycopg.errors.LockNotAvailable:
            return False
        return True
