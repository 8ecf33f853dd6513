"""A machine whose programs take turns: greenlets instead of threads, one seeded scheduler, and a virtual clock.

The programs are written for threads, events and the clock of the operating system. While ``Machine.plugged_in`` lasts,
these have other implementations: a thread is a greenlet, and a wait lets the scheduler choose who goes on. Code outside
of the machine's programs, such as pytest, still gets the real ones.

A program that is killed loses its objects, and nothing that it calls has an effect any more. A program that is frozen,
as by SIGSTOP, keeps them.
"""

from __future__ import annotations

import _thread
import queue
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import greenlet

import cdc.base.daemon.threads
from tests.world.turns import Killed

START_S: Final = 1_700_000_000.0
_STAYS: Final = 0.75
"""How often the program that has the turn keeps it, where others might go on: most steps do not concern the others."""
_IDLES: Final = 0.01
"""How often time passes although somebody could go on, up to where the first wait ends: programs may be slow, too."""
_NAP_S: Final = 1.0
"""The longest that passes in this way. Longer waits are deadlines, which only matter when somebody is really away."""
_THREADS_PER_PROGRAM: Final = 1_000
"""More than any program starts in a run; one that starts more has a loop that starts threads."""

Step = Callable[[], object]


class Stuck(AssertionError):
    """Nobody can go on, and no time that passes will change that."""


class Program:
    """A running program: its threads, and how it ended.

    Attributes:
        name: for people.
        is_dead: it was killed, or has ended.
        is_frozen: it stands still.
        error: what ended its main thread, if that was an error.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.error: BaseException | None = None
        self.tasks: list[Task] = []

    def __repr__(self) -> str:
        return self.name


class Task:
    """One thread of a program, and what it waits for: a condition, a moment, or its turn only."""

    __slots__ = ("glet", "is_done", "program", "until")

    def __init__(self, program: Program, glet: greenlet.greenlet) -> None:
        self.program = program
        self.glet = glet
        self.is_done: Callable[[], bool] | None = None
        self.until: float | None = None

    def is_ready(self, now: float) -> bool:
        """Whether it can go on."""
        if self.is_done is None:
            return self.until is None or self.until <= now
        return (self.until is not None and self.until <= now) or self.is_done()


class Machine:
    """Runs programs in an order that the seed decides. It is the ``Turns`` of the servers' models.

    Args:
        seed: decides everything.

    Attributes:
        steps: ask the surroundings what they could do now by themselves; the scheduler chooses among these steps and
            the programs' threads. With each goes its pace, from 0 to 1: how often it is asked while others can go on.
        set_by: seconds by which somebody has set the clock that tells programs the date.
        timers: say when something happens that needs nothing but time; None when nothing does.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = START_S
        self.set_by = 0.0
        self.steps: list[tuple[Callable[[], Sequence[Step]], float]] = []
        self.timers: list[Callable[[], float | None]] = []
        self._programs: list[Program] = []
        self._by_greenlet: dict[greenlet.greenlet, Task] = {}
        self._hub = greenlet.getcurrent()

    # What the models ask

    @property
    def process(self) -> Hashable:
        """The program that has the turn; ``"outside"`` for the test itself."""
        task = self._by_greenlet.get(greenlet.getcurrent())
        return "outside" if task is None else task.program

    def turn(self) -> None:
        """Let others go on, perhaps.

        Raises:
            Killed: the program was killed.
        """
        task = self._by_greenlet.get(greenlet.getcurrent())
        if task is None:
            return
        if task.program.is_dead:
            raise Killed
        self.now += 0.000_1  # so that a loop that only asks, and never waits, comes to its deadline
        if self.rng.random() >= _STAYS:
            task.is_done = task.until = None
            self._switch(task)

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let others go on until it is done, or the time is over; returns whether it is done.

        Raises:
            Killed: the program was killed.
            Stuck: the test itself would wait for ever.
        """
        task = self._by_greenlet.get(greenlet.getcurrent())
        if task is None:
            return self.run_until(is_done, timeout_s)
        if task.program.is_dead:
            raise Killed
        if is_done():
            return True
        task.is_done = is_done
        task.until = None if timeout_s is None else self.now + max(timeout_s, 0.0)
        self._switch(task)
        return is_done()

    def _switch(self, task: Task) -> None:
        self._hub.switch()
        if task.program.is_dead:
            raise Killed

    # Programs

    def start(self, name: str, work: Callable[[], None]) -> Program:
        """Start a program; its first turn comes later."""
        program = Program(name)
        self._programs.append(program)

        def main() -> None:
            try:
                work()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - the test judges how a program ended
                program.error = error
            program.is_dead = True

        self.spawn(program, main)
        return program

    def spawn(self, program: Program, work: Callable[[], None]) -> Task:
        """Start one more thread of a program."""
        glet = greenlet.greenlet(work, self._hub)
        task = Task(program, glet)
        self._by_greenlet[glet] = task
        program.tasks.append(task)
        assert len(program.tasks) < _THREADS_PER_PROGRAM, f"{program} starts threads without end"
        return task

    def kill(self, program: Program) -> None:
        """End a program at once, as SIGKILL does: none of its calls has an effect any more."""
        program.is_dead = True
        program.is_frozen = False
        for task in list(program.tasks):
            if task.glet:  # it has begun: its ``finally`` blocks run, in a dead program
                self._throw(task)
            self._by_greenlet.pop(task.glet, None)
        program.tasks.clear()

    def _throw(self, task: Task) -> None:
        for _ in range(10):
            with suppress(Killed):
                task.glet.throw(Killed)
            if task.glet.dead:
                return
        raise AssertionError(f"a thread of {task.program} survives its death: it catches BaseException in a loop")

    # The scheduler

    def step(self) -> None:
        """Let one thread, or one step of the surroundings, happen. If nobody can go on, the time passes.

        Raises:
            Stuck: nobody can ever go on.
        """
        ready: list[Task | Step] = []
        soonest: float | None = None
        for program in self._programs:
            if program.is_frozen:
                continue
            for task in program.tasks:
                if task.is_ready(self.now):
                    ready.append(task)
                elif task.until is not None and (soonest is None or task.until < soonest):
                    soonest = task.until
        for source, pace in self.steps:
            if pace >= 1 or self.rng.random() < pace:
                ready.extend(source())
        for timer in self.timers:
            if (at := timer()) is not None and (soonest is None or at < soonest):
                soonest = at
        if not ready and (soonest is None or soonest > self.now + _NAP_S):  # a slow server is not a dead one
            ready.extend(step for source, _ in self.steps for step in source())
        if not ready and soonest is None:
            raise Stuck(self.story())
        if soonest is not None and (not ready or (soonest <= self.now + _NAP_S and self.rng.random() < _IDLES)):
            self.now = max(self.now, soonest)
            return
        chosen = ready[int(self.rng.random() * len(ready))]
        if isinstance(chosen, Task):
            self._resume(chosen)
        else:
            chosen()

    def _resume(self, task: Task) -> None:
        task.is_done = task.until = None
        task.glet.switch()
        if task.glet.dead:
            self._by_greenlet.pop(task.glet, None)
            if task in task.program.tasks:
                task.program.tasks.remove(task)
            if task.program.is_dead:  # its main thread ended, and with it the process
                self.kill(task.program)

    def run_until(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let everybody go on until it is done, or the time is over; returns whether it is done."""
        until = None if timeout_s is None else self.now + timeout_s
        while not is_done():
            if until is not None and self.now >= until:
                return False
            self.step()
        return True

    def story(self) -> str:
        """Returns what each thread waits for, for people."""
        lines = [f"at {self.now - START_S:.3f} s:"]
        for program in self._programs:
            state = "dead" if program.is_dead else "frozen" if program.is_frozen else "alive"
            lines.append(f"  {program} is {state}, {len(program.tasks)} threads")
            for task in program.tasks:
                frame = task.glet.gr_frame
                places = []
                while frame is not None:
                    if "/cdc/" in frame.f_code.co_filename:
                        places.append(f"{frame.f_code.co_filename.rsplit('/cdc/')[-1]}:{frame.f_lineno}")
                    frame = frame.f_back
                lines.append(f"    waits until {task.until} in {' < '.join(places[:6])}")
        return "\n".join(lines)

    # What the programs call

    @property
    def is_inside(self) -> bool:
        """Whether the present code belongs to a program of this machine."""
        return greenlet.getcurrent() in self._by_greenlet

    @contextmanager
    def plugged_in(self) -> Generator[Machine, None, None]:
        """Give this machine's time, threads and waits to its programs while the block lasts, then kill them all."""
        with _PLUG.of(self):
            try:
                yield self
            finally:
                for program in self._programs:
                    self.kill(program)


class _Plug:
    """Puts the replacements in place. Where machines follow each other, one block around them does it only once."""

    def __init__(self) -> None:
        self._machine: Machine | None = None
        self._depth = 0

    @contextmanager
    def of(self, machine: Machine | None) -> Generator[None, None, None]:
        before, self._machine = self._machine, machine
        with ExitStack() as stack:
            if self._depth == 0:
                for target, name, replacement in _REPLACEMENTS:
                    stack.enter_context(patch.object(target, name, replacement))
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                self._machine = before

    @property
    def inside(self) -> Machine | None:
        """The machine, if the present code belongs to one of its programs."""
        machine = self._machine
        return machine if machine is not None and machine.is_inside else None


_PLUG: Final = _Plug()


@contextmanager
def many_machines() -> Generator[None, None, None]:
    """Keep the replacements in place for all machines of the block, which saves half a millisecond for each."""
    with _PLUG.of(None):
        yield


_monotonic, _time, _time_ns, _sleep = time.monotonic, time.time, time.time_ns, time.sleep
_event_wait, _condition_wait, _uuid4 = threading.Event.wait, threading.Condition.wait, uuid.uuid4
_uniform = random.uniform


def monotonic() -> float:
    """``time.monotonic``."""
    machine = _PLUG.inside
    return _monotonic() if machine is None else machine.now


def wall() -> float:
    """``time.time``."""
    machine = _PLUG.inside
    return _time() if machine is None else machine.now + machine.set_by


def wall_ns() -> int:
    """``time.time_ns``."""
    machine = _PLUG.inside
    return _time_ns() if machine is None else int((machine.now + machine.set_by) * 1e9)


def uniform(low: float, high: float) -> float:
    """``random.uniform``."""
    machine = _PLUG.inside
    return _uniform(low, high) if machine is None else machine.rng.uniform(low, high)


def sleep(seconds: float) -> None:
    """``time.sleep``."""
    machine = _PLUG.inside
    if machine is None:
        _sleep(seconds)
    else:
        machine.wait(lambda: False, seconds)


def event_wait(self: threading.Event, timeout: float | None = None) -> bool:
    """``threading.Event.wait``."""
    machine = _PLUG.inside
    return _event_wait(self, timeout) if machine is None else machine.wait(self.is_set, timeout)


def condition_wait(self: Any, timeout: float | None = None) -> bool:
    """``threading.Condition.wait``, on which futures and queues are built."""
    machine = _PLUG.inside
    if machine is None:
        return _condition_wait(self, timeout)
    if timeout is not None and timeout <= 0:
        return False  # a look: executors do it with a lock held, which nobody else could then get
    waiter = _thread.allocate_lock()
    waiter.acquire()
    waiters: deque[Any] = self._waiters
    waiters.append(waiter)
    saved = self._release_save()
    try:
        return machine.wait(lambda: not waiter.locked(), timeout)
    finally:
        self._acquire_restore(saved)
        if waiter in waiters:
            waiters.remove(waiter)


def uuid4() -> uuid.UUID:
    """``uuid.uuid4``, by the seed."""
    machine = _PLUG.inside
    return _uuid4() if machine is None else uuid.UUID(int=machine.rng.getrandbits(128), version=4)


class TakesTurns(threading.Thread):
    """``threading.Thread``: a greenlet when a program of a machine starts it."""

    _task: Task | None = None
    _machine: Machine | None = None

    def start(self) -> None:
        """Start it; its first turn comes later."""
        machine = _PLUG.inside
        if machine is None:
            super().start()
            return
        program = machine.process
        assert isinstance(program, Program)
        self._machine, self._task = machine, machine.spawn(program, self.run)

    def run(self) -> None:
        """Run its work, or as much of it as its program lives for."""
        with suppress(Killed):
            super().run()

    @property
    def ident(self) -> int | None:
        """A number once it was started."""
        return super().ident if self._task is None else id(self._task)

    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return super().is_alive() if self._task is None else not self._task.glet.dead

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end. Python joins the threads of executors once more at its own end: these have long ended."""
        task, machine = self._task, self._machine
        if task is None:
            super().join(timeout)
        elif machine is not None and machine.is_inside:
            machine.wait(lambda: task.glet.dead, timeout)


class SilentTimer(threading.Timer):
    """``threading.Timer``: never rings for a program, because the product only uses it to tell people of a wait."""

    def start(self) -> None:
        """Start it."""
        if _PLUG.inside is None:
            super().start()


class Channel:
    """``queue.SimpleQueue``, which is written in C and would hold up everybody."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def __class_getitem__(cls, _: Any) -> Any:
        """Let annotations name its items."""
        return cls

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        """Add an item; there is always room."""
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Returns the first item, waiting for one if need be."""
        machine = _PLUG.inside
        if block and machine is not None:
            machine.wait(lambda: bool(self._items), timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """Returns the first item, if there is one."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Whether it has no items."""
        return not self._items

    def qsize(self) -> int:
        """Returns the number of its items."""
        return len(self._items)


_REPLACEMENTS: Final[Sequence[tuple[Any, str, Any]]] = (
    (time, "monotonic", monotonic),
    (time, "time", wall),
    (time, "time_ns", wall_ns),
    (time, "sleep", sleep),
    (queue, "time", monotonic),
    (threading.Event, "wait", event_wait),
    (threading.Condition, "wait", condition_wait),
    (threading, "Thread", TakesTurns),
    (threading, "Timer", SilentTimer),
    (queue, "SimpleQueue", Channel),
    (cdc.base.daemon.threads, "SimpleQueue", Channel),
    (uuid, "uuid4", uuid4),
    (random, "uniform", uniform),
)
"""What a program of a machine gets instead of the operating system's: where it is, its name, and the replacement."""
