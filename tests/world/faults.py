"""What goes wrong in a world. Each fault strikes, and returns what ends it; ``nothing`` if it needs no end, None if it
cannot strike now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from cdc.contract.backfill import request_key, request_value
from cdc.contract.known_topic import known_topic_key
from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillRequest, RepairKey, RepairRequest
from cdc.contract.repair import repair_request_key, repair_request_value
from tests.world.kafka_log import QueuedRecord
from tests.world.programs import NAME
from tests.world.workload import KEYS, TABLES

if TYPE_CHECKING:
    from tests.world.world import RunningProgram, World

Ending = Callable[[], None]


def nothing() -> None:
    """What ends a fault that is over as soon as it has struck."""


def _killed(name: str, world: World) -> Ending | None:
    """SIGKILL."""
    program = _running(name, world)
    if program is None:
        return None
    program.kill()
    return nothing


def _frozen(name: str, world: World) -> Ending | None:
    """SIGSTOP, and SIGCONT later."""
    program = _running(name, world)
    if program is None or program.program is None or program.program.is_frozen:
        return None
    frozen = program.program
    frozen.is_frozen = True

    def thaw() -> None:
        frozen.is_frozen = False

    return thaw


def _running(name: str, world: World) -> RunningProgram | None:
    return next((each for each in world.programs if each.name == name and each.is_alive), None)


def _brokers_away(world: World) -> Ending | None:
    """The brokers stop, and start again."""
    world.kafka.is_away = True
    return partial(setattr, world.kafka, "is_away", False)


def _brokers_hang(world: World) -> Ending | None:
    """The brokers hang: connections stay, and nobody is answered."""
    world.kafka.is_silent = True
    return partial(setattr, world.kafka, "is_silent", False)


def _source_away(world: World) -> Ending | None:
    """PostgreSQL restarts."""
    source = world.source
    if source.is_away or not source.answers:
        return None
    source.flush()
    source.go_away()
    return source.come_back


def _source_hangs(world: World) -> Ending | None:
    """PostgreSQL hangs."""
    if world.source.is_away:
        return None
    world.source.answers = False
    return partial(setattr, world.source, "answers", True)


def _minute_passes(world: World) -> Ending | None:
    """Nobody does anything for a while: timeouts end, and tombstones become old."""
    world.machine.now += world.machine.rng.choice((5.0, 70.0, 400.0))
    return nothing


def _clock_set(world: World) -> Ending | None:
    """Somebody sets the clock of the machine on which the programs run; the brokers have their own."""
    world.machine.set_by = world.machine.rng.choice((-4_000.0, -100.0, 0.0, 100.0, 4_000.0))
    return nothing


def _request(world: World, key: bytes, value: bytes) -> Ending | None:
    log = world.kafka.log(progress_topic(NAME), 0)
    if log is None:
        return None
    log.append([QueuedRecord(value, key, None, int(world.machine.now * 1_000), None, len(value))])
    return nothing


def _backfill_asked(world: World) -> Ending | None:
    """``cdc backfill``."""
    rng = world.machine.rng
    asked = BackfillRequest(f"r{rng.getrandbits(32)}", "start", (rng.choice(TABLES),), sweep=rng.random() < 0.5)
    return _request(world, request_key(asked.request), request_value(asked))


def _repair_asked(world: World) -> Ending | None:
    """``cdc reconcile --repair``."""
    rng = world.machine.rng
    keys = (RepairKey(b'{"id":%d}' % rng.randrange(KEYS)), RepairKey(b'{"id":%d}' % rng.randrange(KEYS)))
    asked = RepairRequest(f"r{rng.getrandbits(32)}", 0, rng.choice(TABLES), tuple(dict.fromkeys(keys)))
    return _request(world, repair_request_key(asked.request, 0), repair_request_value(asked))


def _topic_made_anew(world: World) -> Ending | None:
    """Somebody deletes a topic; the bridge makes it anew."""
    name = f"{NAME}.{world.machine.rng.choice(TABLES)}"
    progress = world.kafka.log(progress_topic(NAME), 0)
    key = known_topic_key(name)
    # Before the bridge has put the topic on record, nobody can tell that it was there
    is_on_record = progress is not None and any(
        each.key() == key for each in progress.read(progress.low, progress.stable, 100_000, committed=True)[0]
    )
    if not world.config.heals_gaps or name not in world.kafka.topics or not is_on_record:
        return None
    world.kafka.delete(name)
    world.forget(name)
    return nothing


def _topics_compacted(world: World) -> Ending | None:
    """The cleaner has run everywhere."""
    for topic in world.kafka.topics.values():
        if "compact" in topic.setting("cleanup.policy"):
            for log in topic.partitions:
                world.kafka.clean(topic.name, log.number, log.end)
    return nothing


def _records_deleted(world: World) -> Ending | None:
    """Somebody deletes the first records of a partition."""
    topic = world.kafka.topics.get(f"{NAME}.{world.machine.rng.choice(TABLES)}")
    if not world.config.heals_gaps or topic is None:
        return None
    log = world.machine.rng.choice(topic.partitions)
    if log.stable == log.low:
        return None
    log.delete(log.stable)
    world.forget(topic.name, log.number)
    return nothing


def _slot_lost(world: World) -> Ending | None:
    """PostgreSQL gives up the WAL that the slot needs."""
    slot = world.config.source.slot
    if not world.config.heals_gaps or slot not in world.source.slots or world.source.is_away:
        return None
    world.source.lose_slot(slot)
    return nothing


FAULTS: Final[Mapping[str, Callable[[World], Ending | None]]] = {
    **{f"{name} killed": partial(_killed, name) for name in ("bridge", "view", "other bridge")},
    **{f"{name} frozen": partial(_frozen, name) for name in ("bridge", "view", "other bridge")},
    "brokers away": _brokers_away,
    "brokers hang": _brokers_hang,
    "source away": _source_away,
    "source hangs": _source_hangs,
    "minutes pass": _minute_passes,
    "clock set": _clock_set,
    "topic made anew": _topic_made_anew,
    "topics compacted": _topics_compacted,
    "records deleted": _records_deleted,
    "slot lost": _slot_lost,
    "backfill asked": _backfill_asked,
    "repair asked": _repair_asked,
}
