"""A pair of bridges through every kind of outage: one streams again soon, the other waits, and neither ends.

It prints how long nothing was published: from the moment when the holder was gone, or when the server was back.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from cdc.lab.stack import Kafka, KafkaBroker, PostgresServer
from tests.support.bridge_process import CdcProcess
from tests.support.cut_wire import Wire
from tests.support.deployment import Deployment, deployed
from tests.support.servers import Database, OwnStack, fresh_database
from tests.support.soak import times
from tests.support.topic_audit import audit
from tests.support.waiting import eventually, within

TABLE: Final = "public.items"
WALSENDER_S: Final = 2
"""What the server gives a silent walsender: then the slot of a holder that stands still is free."""
BOUND_S: Final = 30
"""Within which a pair is to publish again: twice the longest that was seen, on a busy machine."""

STREAMS, WAITS = '"streaming"', '"waiting for the slot: another session has it"'


class Pair:
    """Two bridges of one configuration, each with a wire of its own to the source."""

    def __init__(self, live: Deployment, server: PostgresServer, wires: Mapping[CdcProcess, Wire]) -> None:
        self.live, self.server, self.wires = live, server, wires
        self.both = tuple(wires)
        self._before = dict.fromkeys(self.both, 0)
        self.recovered = 0.0

    def start(self, process: CdcProcess) -> None:
        dsn = self.server.dsn().replace(str(self.server.port), str(self.wires[process].port))
        self.live.settings["source"]["dsn"] = dsn
        self.live.write()
        process.start()
        self._before[process] = 0
        eventually(lambda: "serving /metrics" in process.said() or process.ended)  # it has read the file

    def roles(self) -> dict[str, CdcProcess]:
        """Who streams and who waits, as each said last."""
        found = {}
        for process in self.both:
            assert not process.ended, f"{process.tail()}"
            said = process.said()
            found["holder" if said.rfind(STREAMS) > said.rfind(WAITS) else "other"] = process
        return found

    def settled(self) -> dict[str, CdcProcess]:
        """The roles, once each has one and says so."""

        def found() -> dict[str, CdcProcess] | None:
            spoke = all(WAITS in each.said() or STREAMS in each.said() for each in self.both)
            return roles if spoke and len(roles := self.roles()) == 2 else None

        roles = eventually(found, 60, lambda: "\n".join(each.tail() for each in self.both))
        assert roles is not None
        self.live.bridge = roles["holder"]
        return roles

    def publish(self) -> None:
        """Change every row, and see that published."""
        self.live.source.execute("UPDATE items SET n = n + 1")
        wanted = self.live.now()

        def published() -> bool:
            progress = self.live.progress_or_none()
            return progress is not None and progress.lsn >= wanted

        eventually(published, BOUND_S, lambda: "\n".join(each.tail() for each in self.both), is_momentary=True)
        self.recovered = time.monotonic()

    def alarms(self) -> list[dict[str, Any]]:
        """What both logged as a warning or worse since the last call."""
        found = []
        for process in self.both:
            lines = process.said().splitlines()
            new, self._before[process] = lines[self._before[process] :], len(lines)
            found += [line for line in map(json.loads, new) if line["level"] not in ("debug", "info")]
        return found


@contextmanager
def pair(own_stack: OwnStack, broker: Kafka, folder: Path, delivery: str) -> Iterator[Pair]:
    server = own_stack.postgres(settings={"wal_sender_timeout": f"{WALSENDER_S}s"})
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i")
    with ExitStack() as ends:
        live = ends.enter_context(deployed(source, broker.bootstrap, source, folder, {"http": {"bridge_port": 0}}))
        live.deliver(delivery)
        wires = {
            process: ends.enter_context(Wire("127.0.0.1", server.port))
            for process in (live.bridge, live.second_bridge())
        }
        two = Pair(live, server, wires)
        for process in two.both:
            ends.callback(process.kill)
        for process in two.both:
            two.start(process)
        two.settled()
        live.wait_backfilled(TABLE)
        yield two


def source_restarted(two: Pair, _broker: Kafka) -> float:
    two.server.restart()
    return time.monotonic()


def source_killed(two: Pair, _broker: Kafka) -> float:
    two.server.kill()
    two.server.restart()
    return time.monotonic()


def broker_restarted(_two: Pair, broker: Kafka) -> float:
    assert isinstance(broker, KafkaBroker)
    broker.restart()
    return time.monotonic()


def holder_cut_off(two: Pair, _broker: Kafka) -> float:
    holder = two.roles()["holder"]
    two.wires[holder].cut()
    began = time.monotonic()
    two.publish()
    two.wires[holder].mend()
    return began


def holder_killed(two: Pair, _broker: Kafka) -> float:
    holder = two.roles()["holder"]
    holder.kill()
    began = time.monotonic()
    two.publish()
    two.start(holder)
    return began


def holder_stopped(two: Pair, _broker: Kafka) -> float:
    holder = two.roles()["holder"]
    holder.signal(signal.SIGSTOP)
    began = time.monotonic()
    two.publish()
    holder.signal(signal.SIGCONT)
    return began


def both_started_together(two: Pair, _broker: Kafka) -> float:
    for process in two.both:
        process.kill()
    began = time.monotonic()
    for process in two.both:
        two.start(process)
    return began


def both_started_during_an_outage(two: Pair, _broker: Kafka) -> float:
    two.server.kill()
    for process in two.both:
        process.kill()
    for process in two.both:
        two.start(process)
    for process in two.both:
        process.wait_said("trying again")
    two.server.restart()
    return time.monotonic()


PUBLISHES_ITSELF: Final = (holder_cut_off, holder_killed, holder_stopped)
SILENT: Final = (*PUBLISHES_ITSELF, both_started_together)
OF_THE_SOURCE: Final = (source_restarted, source_killed, *SILENT, both_started_during_an_outage)


def go_through(
    two: Pair, broker: Kafka, kinds: tuple[Callable[[Pair, Kafka], float], ...], rounds: int, delivery: str
) -> None:
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for kind in kinds:
            two.alarms()
            began = kind(two, broker)
            if kind not in PUBLISHES_ITSELF:
                two.publish()
            took[kind.__name__].append(two.recovered - began)
            two.settled()
            alarms = two.alarms()
            told = f"round {number} of {kind.__name__}: {alarms}"
            if kind in SILENT:
                assert alarms == [], told
            else:
                again = [each for each in alarms if each["message"] == "trying again"]
                assert len(again) <= 4, told
                assert all(each.get("remedy") for each in again), told
    for name, seconds in took.items():
        sys.stdout.write(
            f"{delivery}: {name}: published again after {median(seconds):.1f} s, at most {max(seconds):.1f} s "
            f"({len(seconds)} times)\n"
        )
        assert max(seconds) < BOUND_S, name
    two.live.wait_equal(TABLE)
    if delivery == "transactional":
        assert audit(two.live.records(TABLE)) == []


@pytest.mark.soak
@pytest.mark.parametrize("delivery", ["transactional", pytest.param("idempotent", marks=pytest.mark.long)])
def test_a_pair_survives_every_outage_of_the_source_and_of_its_holder(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path, delivery: str
) -> None:
    with pair(own_stack, kafka, tmp_path, delivery) as two:
        go_through(two, kafka, OF_THE_SOURCE, times(1, soak=20), delivery)


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_a_pair_survives_a_broker_that_restarts(own_stack: OwnStack, tmp_path: Path, delivery: str) -> None:
    broker = own_stack.kafka()
    with pair(own_stack, broker, tmp_path, delivery) as two:
        go_through(two, broker, (broker_restarted,), times(3, soak=20), delivery)


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_two_that_start_together_on_a_fresh_database_make_everything_once(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path, delivery: str
) -> None:
    server = own_stack.postgres()
    for number in range(times(2, soak=20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with fresh_database(server) as source, deployed(source, kafka.bootstrap, source, folder) as live:
            live.deliver(delivery)
            start_together(live)


def start_together(live: Deployment) -> None:
    live.source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    live.source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i")
    both = live.bridge, live.second_bridge()
    try:
        for process in both:
            process.start()
        eventually(lambda: all(WAITS in each.said() or STREAMS in each.said() or each.ended for each in both))
        tails = "\n".join(each.tail() for each in both)
        assert [each.ended for each in both] == [False, False], tails
        live.bridge = next(each for each in both if WAITS not in each.said())
        live.wait_backfilled(TABLE)
        assert sum(STREAMS in each.said() for each in both) == 1, tails
        live.assert_published(TABLE)
        assert [line for each in both for line in each.said().splitlines() if '"level": "info"' not in line] == []
    finally:
        for process in both:
            process.kill()


def test_an_outage_of_postgresql_is_told_once_and_its_end_once(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path
) -> None:
    """By the bridge that streams, by the one that waits, and by the sink."""
    server = own_stack.postgres()
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    source.execute("CREATE DATABASE mirror")
    replica = Database("mirror", server.dsn("mirror"))
    with deployed(source, kafka.bootstrap, replica, tmp_path) as live, ExitStack() as ends:
        second = live.second_bridge()
        ends.callback(second.kill)
        live.start()
        second.start()
        second.wait_said("waiting for the slot")
        live.wait_mirrored()
        all_three = live.bridge, second, live.sink
        server.kill()
        for process in all_three:
            process.wait_said("trying again")
        # Long enough for three more attempts, each of which was a line
        assert not within(lambda: any(len(warnings_of(each)) > 1 for each in all_three), 5), told_by(all_three)
        server.restart()
        source.execute("INSERT INTO items VALUES (1, 1)")
        for process in all_three:
            process.wait_said('"works again"')
            assert len(warnings_of(process)) <= 2, told_by([process])  # that it starts up may be one more


def warnings_of(process: CdcProcess) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, process.said().splitlines()) if line["level"] not in ("debug", "info")]


def told_by(processes: Iterable[CdcProcess]) -> str:
    return "\n".join(each.tail() for each in processes)
