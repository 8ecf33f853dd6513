"""One world: a source, brokers, a view, the real programs between them, and everything that may happen to them.

It has two parts. First the workload runs, and faults strike. Then the world heals: no more faults, every program runs,
and within a bounded number of steps the topics and the view must be what the source is.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from cdc.base.config import Config
from cdc.contract.naming import progress_topic
from cdc.contract.progress import parse_progress, stream_key
from cdc.views.store.memory import Contents, MemoryStore
from tests.support.views import facts_of, look
from tests.world.clients import Servers
from tests.world.faults import FAULTS, nothing
from tests.world.kafka import Faults, KafkaCluster
from tests.world.kafka_clients import listen
from tests.world.machine import START_S, Machine, Program
from tests.world.oracle import SourceHistory, TopicAudit, Wrong, difference, key_text, read_row, rows_at
from tests.world.postgres import WorldServer, WorldSlot
from tests.world.postgres_sessions import PostgresWorld
from tests.world.programs import NAME, run_bridge, run_view
from tests.world.workload import DDL, DEEDS, TABLES, Workload

HEALS_WITHIN: Final = 60_000
"""Steps after which a world that is whole must be consistent again."""

_STRIKES: Final = 0.02
_ENDS: Final = 0.02

_PACES: Final = (1.0, 0.3, 0.1, 0.03)
_PATIENCE_S: Final = 2.0
CHAOS_STEPS: Final = 3_000
"""The first part is over after so many steps, if workload and faults are not before that."""


class Plan(NamedTuple):
    """What a world is made of, and how much happens in it.

    Attributes:
        transactions: how many the workload begins: at most, or exactly with ``at``.
        faults: how many strikes there are at most.
        kinds: of which kinds; each world draws its own unless given.
        at: the steps at which these kinds strike, one after the other. None for strikes at random, which may also meet
            a second bridge.
    """

    transactions: int = 20
    faults: int = 8
    kinds: tuple[str, ...] = ()
    at: tuple[int, ...] | None = None


SOMETIMES: Final = frozenset({*FAULTS, *DEEDS, *DDL, "exact"})
"""What must happen sometimes; if it never does, the worlds prove less than they seem to."""


class RunningProgram:
    """A program that is started again after each end, as a supervisor would."""

    def __init__(self, world: World, name: str, work: Callable[[threading.Event], None]) -> None:
        self.name = name
        self._world = world
        self._work = work
        self.stop = threading.Event()
        self.program: Program | None = None
        self.starts = 0

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or stands still."""
        return self.program is not None and not self.program.is_dead

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.is_alive:
            return
        if self.program is not None and self.program.error is not None:
            raise self.program.error
        self.starts += 1
        self.stop = stop = threading.Event()
        self.program = self._world.machine.start(f"{self.name} {self.starts}", partial(self._work, stop))

    def kill(self) -> None:
        """Kill it: the servers lose its connections."""
        program = self.program
        assert program is not None
        self._world.machine.kill(program)
        self._world.kafka.lose(program)
        self._world.source.lose(program, is_noticed=self._world.machine.rng.random() < 0.5)
        if self.name == "view":
            self._world.contents.writer = None


class World:
    """A world.

    Args:
        seed: decides everything.
        config: what bridge and view are configured with.
        plan: how much happens.

    Attributes:
        reached: how often each fault struck, and each state was seen.
    """

    def __init__(self, seed: int, config: Config, plan: Plan) -> None:
        self.plan = plan
        self.config = config
        self.reached: Counter[str] = Counter()
        self.machine = machine = Machine(seed)
        self.kafka = KafkaCluster(machine)
        self.servers = PostgresWorld(machine)
        self.source = self.servers.add(WorldServer(machine))
        self.contents = Contents()
        self.history = SourceHistory(self.source)
        drawn = machine.rng.randint(1, plan.transactions)
        self.workload = Workload(self.source, self.reached, drawn if plan.at is None else plan.transactions)
        self.audits = {
            table: TopicAudit(
                self.kafka,
                table,
                self.history,
                begins_anew=self.workload.has_ddl,
                in_order=config.delivery == "transactional",
            )
            for table in TABLES
        }
        self.bridge = RunningProgram(self, "bridge", partial(run_bridge, config))
        self.view = RunningProgram(self, "view", partial(run_view, config, self.contents, machine))
        self.other = RunningProgram(self, "other bridge", partial(run_bridge, config))
        self.programs = [self.bridge, self.view]
        if machine.rng.random() < 0.4 and plan.at is None:
            self.programs.append(self.other)
        self._faults = machine.rng.randint(1, plan.faults)
        self._due = deque(zip(plan.at, plan.kinds, strict=True)) if plan.at is not None else None
        self._lasting: dict[str, Callable[[], None]] = {}
        everything = sorted(FAULTS)
        self.kinds = plan.kinds or machine.rng.sample(everything, machine.rng.randint(1, len(everything)))
        is_random = plan.at is None
        for name in ("cleaning", "late_ends", "late_leaders", "lost_connections", "unknown_outcomes"):
            if machine.rng.random() < 0.5 and is_random:
                setattr(self.kafka.faults, name, 0.02)
        self._seen_version = 0
        self._slot: WorldSlot | None = None
        self._confirmed = 0
        self._is_damaged = False
        self.is_told = False
        rng = machine.rng
        self.source.block_stride = rng.choice((1, 512))
        machine.steps = [
            (self.kafka.steps, rng.choice(_PACES)),
            (self.source.steps, rng.choice(_PACES)),
            (self.workload.steps, rng.choice(_PACES)),
            (self._strikes, 1.0),
        ]
        if not is_random:
            self._faults = len(self._due or ())
            machine.steps = [(source, 1.0) for source, _ in machine.steps]
        # While something is away or stands still, the time passes even if nobody waits for it
        machine.timers = [self.kafka.next_at, lambda: machine.now + _PATIENCE_S if self._lasting else None]

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self.reached["steps"]

    def tell(self) -> None:
        """Print what happens from now on: what the programs log, and what strikes."""

        def line(_logger: object, _level: str, event: MutableMapping[str, Any]) -> str:
            text = event.pop("event")
            return self.line(str(self.machine.process), f"{text} {event or ''}")

        structlog.configure(
            processors=[line],
            wrapper_class=structlog.make_filtering_bound_logger(10),
            logger_factory=structlog.PrintLoggerFactory(),
        )
        self.is_told = True

    def line(self, who: str, what: str) -> str:
        """Returns a line of the story."""
        return f"{self.steps:6} {self.machine.now - START_S:10.3f} s  {who:10} {what}"

    @contextmanager
    def going(self) -> Generator[None, None, None]:
        """Let the programs of this process live in this world while the block lasts."""
        Servers.world = self.servers
        listen(self.kafka)
        with self.machine.plugged_in():
            yield

    def run(self) -> None:
        """Let it happen, and judge it.

        Raises:
            Wrong: a promise was not kept.
            BaseException: a program ended with an error.
        """
        with self.going():
            self.workload.make_tables()
            until = CHAOS_STEPS
            while self.steps < until and not (self.workload.is_over and not self._faults):
                self._step()
            self._heal()
            until = self.steps + HEALS_WITHIN
            while why := self.why_not_whole():
                if self.steps > until:
                    raise Wrong(f"not whole after {HEALS_WITHIN} steps: {why}\n{self.machine.story()}")
                for _ in range(50):
                    self._step()
                # A gap is closed only after the server has gone past what is published
                self.source.write_background()
                self.source.flush()

    def _step(self) -> None:
        self.reached["steps"] += 1
        self.machine.step()
        while self._due and self._due[0][0] <= self.steps:
            self._strike(self._due.popleft()[1])
        for each in self.programs:
            each.start()
        if self.contents.version != self._seen_version:
            self._seen_version = self.contents.version
            self._judge_view()
        if self.steps % 20 == 0:
            self.look()

    def look(self) -> None:
        """Check what has become readable, and what is confirmed."""
        for audit in self.audits.values():
            audit.look()
        if self.kafka.torn:
            raise Wrong("a Kafka transaction was committed in the middle")
        slot = self.source.slots.get(self.config.source.slot)
        # A commit counts once the coordinator has decided it; then its markers are still on their way to the partitions
        is_decided = any(each.state == "commit" for each in self.kafka.coordinator.values())
        if slot is not self._slot:
            self._slot, self._confirmed = slot, 0 if slot is None else slot.confirmed
        elif slot is not None and slot.confirmed != self._confirmed and not is_decided:
            self._confirmed = slot.confirmed
            if self._confirmed > self._published():
                raise Wrong(f"the slot is confirmed up to {self._confirmed}, beyond what is published")

    def _published(self) -> int:
        topic = self.kafka.topic(progress_topic(NAME))
        if topic is None:
            return 0
        key = stream_key(self.config.source.slot)
        log = topic.partitions[0]
        messages, _ = log.read(log.low, log.stable, 100_000, committed=True)
        found = [
            int(parse_progress(value).lsn)
            for each in messages
            if each.key() == key and (value := each.value()) is not None
        ]
        return max(found, default=0)

    def forget(self, topic: str, number: int | None = None) -> None:
        """Note that records of a topic, or of one of its partitions, are gone."""
        self._is_damaged = True
        for audit in self.audits.values():
            if audit.topic == topic:
                audit.forget(number)

    # What strikes.

    def _strikes(self) -> list[Callable[[], object]]:
        """Returns at most one thing that goes wrong now, or that has gone on for long enough."""
        rng = self.machine.rng
        if self._lasting and rng.random() < _ENDS:
            return [partial(self._end, rng.choice([*self._lasting]))]
        if not self._faults or self._due is not None or rng.random() > _STRIKES:
            return []
        return [partial(self._strike, rng.choice(self.kinds))]

    def _strike(self, kind: str) -> None:
        ending = FAULTS[kind](self)
        if ending is None and self._due is None:
            return  # another time
        self._faults -= 1
        if ending is None:
            return
        self.note(kind)
        if ending is not nothing:
            self._lasting[kind] = ending

    def _end(self, kind: str) -> None:
        self._lasting.pop(kind)()
        self.note(f"{kind}: over")

    def note(self, what: str) -> None:
        """Count something that was reached, and tell it."""
        self.reached[what] += 1
        if self.is_told:
            sys.stdout.write(self.line("world", what) + "\n")

    def _heal(self) -> None:
        self._faults = 0
        for kind in [*self._lasting]:
            self._end(kind)
        self.kafka.faults = Faults()
        self.machine.steps = [(each, 1.0) for each, _ in self.machine.steps]
        self.workload.finish()

    # What must be true.

    def _judge_view(self) -> None:
        store = MemoryStore(self.contents)
        facts = facts_of(store)
        # The bridge notices only within ten seconds that another table has taken a name, or that a topic was damaged
        if facts.view is None or not facts.view.lsn or self.workload.renamed_at > 0 or self._is_damaged:
            return
        for table in TABLES:
            seen = look(store, table)
            if seen is None or seen.table.state != "exact":
                continue
            self.reached["exact"] += 1
            found = {key_text(key): read_row(row.row) for key, row in seen.rows.items()}
            wanted = rows_at(self.source, table, facts.view.lsn)
            if self.workload.has_toast:  # such a row may be newer, or older if it is deleted soon: docs/exceptions.md
                for key in [key for key in {*found, *wanted} if self.history.had_long(table, key)]:
                    found.pop(key, None)
                    wanted.pop(key, None)
            if why := difference(f"view of {table} at {facts.view.lsn}", wanted, found):
                raise Wrong(why)

    def why_not_whole(self) -> str:
        """Returns what is missing until everything is what the source is; empty when nothing is."""
        self.look()
        for audit in self.audits.values():
            if why := audit.compare(self.source):
                return why
        store = MemoryStore(self.contents)
        facts = facts_of(store)
        end = max(each.end_lsn or 0 for each in self.source.commits)
        if facts.view is None or facts.view.lsn < end:
            return f"the view is at {facts.view and facts.view.lsn}, the source at {end}"
        for table in TABLES:
            seen = look(store, table)
            if seen is None or seen.table.state != "exact":
                return f"the view's {table} is {seen and seen.table.state}: {seen and seen.table.reason}"
        return ""
