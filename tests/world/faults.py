"""What goes wrong in a world. Each fault strikes, and returns what ends it; ``nothing`` if it needs no end, None if it
cannot strike now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

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


FAULTS: Final[Mapping[str, Callable[[World], Ending | None]]] = {
    **{f"{name} killed": partial(_killed, name) for name in ("bridge", "view", "other bridge")},
    **{f"{name} frozen": partial(_frozen, name) for name in ("bridge", "view", "other bridge")},
    "brokers away": _brokers_away,
    "brokers hang": _brokers_hang,
    "source away": _source_away,
    "source hangs": _source_hangs,
}
